package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestProcess is no test: other tests run it as a process of its own, with the arguments that they say.
func TestProcess(*testing.T) {
	if args, is := os.LookupEnv("ATTACHE_TEST_ARGS"); is {
		os.Args = append([]string{"attache"}, strings.Fields(args)...)
		main()
	}
}

// TestSignals: SIGHUP reads the file again, the first SIGTERM drains, the second one ends at once.
func TestSignals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "attache.yaml")
	text := "extproc: {listen: '127.0.0.1:0', drain_wait: 1h}\nxds: {listen: '127.0.0.1:0'}\nadmin: {listen: '127.0.0.1:0'}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcess$")
	process.Env = append(os.Environ(), "ATTACHE_TEST_ARGS=serve -c "+file)
	log, err := process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for _, step := range []struct {
		says   string
		signal syscall.Signal
	}{
		{"attache serves", syscall.SIGHUP},
		{"the configuration file is in effect", syscall.SIGTERM},
		{"ext_proc is not ready any more", syscall.SIGTERM},
		{"terminated a second time: ended at once", 0},
	} {
		for !strings.Contains(lines.Text(), step.says) {
			if !lines.Scan() {
				t.Fatalf("it never says %q", step.says)
			}
		}
		if step.signal != 0 {
			if err := process.Process.Signal(step.signal); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := process.Wait(); !errors.As(err, &exit) || exit.ExitCode() != endedAtOnce {
		t.Errorf("it ended with %v, want status %d", err, endedAtOnce)
	}
}
