package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Envoy is a running Envoy.
type Envoy struct {
	*Process

	// Admin is the base URL of its admin endpoint.
	Admin string
}

// FindEnvoy returns the Envoy to use: what the environment variable ENVOY names, else envoy on the PATH.
func FindEnvoy() (string, error) {
	if path := os.Getenv("ENVOY"); path != "" {
		info, err := os.Stat(path)
		if err != nil {
			return "", fmt.Errorf("ENVOY names no Envoy: %w", err)
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return "", fmt.Errorf("ENVOY=%s is not an executable file", path)
		}
		return path, nil
	}
	path, err := exec.LookPath("envoy")
	if err != nil {
		return "", errors.New("no Envoy found: run `make envoy` and then `make demo`, or set ENVOY=/path/to/envoy (1.38 or newer)")
	}
	return path, nil
}

// startTimeout is how long Envoy may take to be ready on a busy machine.
const startTimeout = 20 * time.Second

// StartEnvoy writes the configuration into dir, starts Envoy with it and waits until it is live. Ports of 0 in the
// configuration are free ones; Listener tells which. Envoy's log goes to dir/envoy.log.
func StartEnvoy(ctx context.Context, binary, dir, config string) (*Envoy, error) {
	file, address := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "envoy-admin")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	if err := os.Remove(address); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "envoy.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own
	p, err := Start(ctx, log, binary, "-c", file, "--admin-address-path", address, "--disable-hot-restart",
		"--concurrency", "2", "-l", "warning")
	if err != nil {
		return nil, err
	}
	e := &Envoy{Process: p}
	if err := e.await(ctx, address); err != nil {
		e.Kill()
		return nil, fmt.Errorf("%w; the end of its log:\n%s", err, tail(log.Name()))
	}
	return e, nil
}

// await waits for the admin address and then for readiness.
func (e *Envoy) await(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if e.Admin == "" {
			if text, err := os.ReadFile(address); err == nil && len(text) > 0 {
				e.Admin = "http://" + strings.TrimSpace(string(text))
			}
		} else if text, err := get(ctx, e.Admin+"/ready"); err == nil && strings.Contains(text, "LIVE") {
			return nil
		}
		select {
		case <-tick.C:
		case <-e.Done():
			return fmt.Errorf("envoy ended at start: %w", e.Err())
		case <-ctx.Done():
			return errors.New("envoy was not ready in time")
		}
	}
}

// Listener waits for a listener and returns its address, "127.0.0.1:port".
func (e *Envoy) Listener(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if port := e.port(ctx, name); port > 0 {
			return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-e.Done():
			return "", fmt.Errorf("envoy ended: %w", e.Err())
		case <-ctx.Done():
			return "", fmt.Errorf("envoy has no listener %q: is the control plane reached?", name)
		}
	}
}

func (e *Envoy) port(ctx context.Context, name string) int {
	text, err := get(ctx, e.Admin+"/listeners?format=json")
	if err != nil {
		return 0
	}
	var list struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Port int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if json.Unmarshal([]byte(text), &list) != nil {
		return 0
	}
	for _, l := range list.Statuses {
		if l.Name == name {
			return l.Local.Socket.Port
		}
	}
	return 0
}

// Stat reads one counter or gauge; 0 when Envoy does not have it.
func (e *Envoy) Stat(ctx context.Context, name string) int {
	text, err := get(ctx, e.Admin+"/stats?filter=^"+name+"$")
	if err != nil {
		return 0
	}
	_, value, _ := strings.Cut(strings.TrimSpace(text), ": ")
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0
	}
	return n
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return string(body), err
}

func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}
