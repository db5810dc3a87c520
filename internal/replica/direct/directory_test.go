package direct

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"attache/internal/bubble"
)

// TestDirectory: what names stand for is looked up again and again, and kept while nobody can say.
func TestDirectory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, cfg := newNetwork(), config("[fd00::1]:9000", "10.0.0.9:9000", "gateway-1:9000")
		cfg.DNS, cfg.Port = "gateways", 9004
		w.set("gateway-1", nil, "10.0.0.1", "10.0.0.9")
		d, err := newDirectory(cfg, w, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if found, _ := d.current(); found.known {
			t.Error("known before it was looked up")
		}
		for _, c := range []struct {
			when      string
			broken    error
			addresses []string
			want      string
			changed   bool
		}{
			{"at first", nil, []string{"10.0.0.2", "::ffff:10.0.0.3"}, "10.0.0.1:9000 10.0.0.2:9004 10.0.0.3:9004 10.0.0.9:9000 [fd00::1]:9000", true},
			{"in another order", nil, []string{"10.0.0.3", "10.0.0.2"}, "10.0.0.1:9000 10.0.0.2:9004 10.0.0.3:9004 10.0.0.9:9000 [fd00::1]:9000", false},
			{"one more", nil, []string{"10.0.0.3", "10.0.0.2", "10.0.0.4"}, "10.0.0.1:9000 10.0.0.2:9004 10.0.0.3:9004 10.0.0.4:9004 10.0.0.9:9000 [fd00::1]:9000", true},
			{"nobody can say", errors.New("timeout"), nil, "10.0.0.1:9000 10.0.0.2:9004 10.0.0.3:9004 10.0.0.4:9004 10.0.0.9:9000 [fd00::1]:9000 failed", true},
			{"still", errors.New("another"), nil, "10.0.0.1:9000 10.0.0.2:9004 10.0.0.3:9004 10.0.0.4:9004 10.0.0.9:9000 [fd00::1]:9000 failed", false},
			{"there is no such name", nil, nil, "10.0.0.1:9000 10.0.0.9:9000 [fd00::1]:9000", true},
		} {
			_, changed := d.current()
			w.set("gateways", c.broken, c.addresses...)
			d.look(t.Context())
			found, _ := d.current()
			var got []string
			for _, a := range found.targets {
				got = append(got, a.address.String())
			}
			if found.err != nil {
				got = append(got, "failed")
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s: %v, want %s", c.when, got, c.want)
			}
			select {
			case <-changed:
				if !c.changed {
					t.Errorf("%s: a change was told, and there is none", c.when)
				}
			default:
				if c.changed {
					t.Errorf("%s: a change was not told", c.when)
				}
			}
		}
	})
}

func TestTooManyAddresses(t *testing.T) {
	w, cfg := newNetwork(), config()
	cfg.DNS = "gateways"
	var addresses []string
	for i := range 300 {
		addresses = append(addresses, fmt.Sprintf("10.0.%d.%d", i/100, i%100))
	}
	w.set("gateways", nil, addresses...)
	d, err := newDirectory(cfg, w, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	d.look(t.Context())
	if found, _ := d.current(); len(found.targets) != mostTargets || found.err == nil {
		t.Errorf("%d addresses are used (%v)", len(found.targets), found.err)
	}
}

// TestGatewaysComeAndGo: replicas are found by a name within an interval.
func TestGatewaysComeAndGo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, cfg, heard := newNetwork(), config(), &ear{}
		cfg.DNS = "gateways"
		w.set("gateways", nil, "10.0.0.1")
		a := w.start(t, "10.0.0.1:9004", cfg)
		stop := follow(a.Link("llama"), heard.events())
		var all []*machine
		for i := 2; i <= 5; i++ {
			address := fmt.Sprintf("10.0.0.%d", i)
			m := w.start(t, address+":9004", cfg)
			all = append(all, m)
			m.Link("llama")
			w.set("gateways", nil, append(strings.Split("10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4", " ")[:i-1], address)...)
			time.Sleep(cfg.Interval + time.Second)
			if got := a.Link("llama").following.Load().counts()[following]; got != i-1 {
				t.Errorf("%d are followed, want %d", got, i-1)
			}
		}
		w.set("gateways", nil, "10.0.0.1")
		time.Sleep(cfg.Interval + time.Second)
		for _, m := range all {
			m.stop()
		}
		time.Sleep(longestPause)
		if got := a.Link("llama").following.Load().counts(); got != [states]int{itself: 1} {
			t.Errorf("addresses by state: %v", got)
		}
		if got := heard.told(); got != "joined 5, lost 0: " {
			t.Error(got, heard.lastLoss())
		}
		stop()
		a.stop()
	})
}
