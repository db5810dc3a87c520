package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"attache/internal/proc"
)

// TestAnEngineJoinsAndLeavesUnderLoad: a worker that registers itself is used, survives a gateway that forgets it, and leaves without an
// error for any client.
func TestAnEngineJoinsAndLeavesUnderLoad(t *testing.T) {
	for _, mode := range []string{"ads", "attach"} {
		t.Run(mode, func(t *testing.T) {
			r := start(t, setup{mode: mode, engines: 1, config: "workers:\n  registration: {token_file: DIR/token, ttl: 3s}\n",
				files: map[string]string{"token": "a-token-of-some-length\n"}})
			e := r.addEngineFor("joined", model)
			j := r.join(e)
			ready := func(want string) func() bool {
				return func() bool { return strings.Join(r.workers("ready"), ",") == want }
			}
			r.eventually("it is ready", ready("engine-0,joined"))
			l := r.load(8, chatRequest{tokens: 6, stream: true})
			r.eventually("it serves", func() bool { return r.inFlight("joined") > 0 })
			r.attache.Kill()
			r.startAttache()
			r.eventually("it registers at a gateway that has forgotten it", ready("engine-0,joined"))
			r.eventually("it serves again", func() bool { return r.inFlight("joined") > 0 })
			r.leave(j)
			e.Kill()
			r.eventually("it is gone", func() bool { return ready("engine-0")() && strings.Join(r.workers("gone"), ",") == "joined" })
			l.end()
			t.Logf("%d ok, %d errors, %d broken streams", l.ok.Load(), l.errors.Load(), l.broken.Load())
			if j.Err() != nil || l.errors.Load() != 0 || l.broken.Load() != 0 {
				t.Errorf("it left with %v; clients saw %d errors, %d broken streams: %s", j.Err(), l.errors.Load(), l.broken.Load(), strings.Join(l.first, "; "))
			}
		})
	}
}

// join has an engine register at the gateway, which has the folder's file token.
func (r *rig) join(e *engine) *proc.Process {
	r.t.Helper()
	j, err := proc.Start(context.Background(), r.log("join"), os.Getenv("ATTACHE"), "join", "--engine", "http://"+e.address(),
		"--gateway", r.admin, "--token-file", filepath.Join(r.dir, "token"), "--name", e.name)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(j.Kill)
	return j
}

// leave ends what join started, as a supervisor does.
func (r *rig) leave(j *proc.Process) {
	r.t.Helper()
	if err := j.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-j.Done():
	case <-time.After(30 * time.Second):
		r.t.Fatal("it does not leave")
	}
}
