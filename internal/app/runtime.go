package app

import (
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"attache/internal/config"
	"attache/internal/field"
)

// tuneRuntime sets the collector as configured. GOGC and GOMEMLIMIT in the environment win: whoever set them meant it.
func tuneRuntime(cfg config.Runtime, log *slog.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(cfg.GCPercent)
	}
	limit := cfg.MemoryLimit
	if limit == 0 {
		limit = controlGroupLimit("/sys/fs/cgroup/memory.max") / 10 * 9
	}
	if limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(limit))
		log.Debug("memory limit set", "bytes", int64(limit))
	}
}

// controlGroupLimit reads the memory limit of the control group (cgroup v2, memory.max); 0 when there is none.
func controlGroupLimit(file string) field.Bytes {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0 // "max"
	}
	return field.Bytes(n)
}
