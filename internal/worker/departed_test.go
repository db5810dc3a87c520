package worker

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"attache/internal/bubble"
)

func TestWhoLeftIsShownForAWhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r, err := New(DefaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		left := func() string {
			var all []string
			for _, d := range r.Departed() {
				all = append(all, d.Pool+"/"+d.Name+": "+d.Cause)
			}
			return strings.Join(all, "\n")
		}
		gone := func() int { return testutil.CollectAndCount(r.metrics.states) - len(r.Set().All()) }
		ours := specs("p/a", "p/b", "p/c")
		r.Apply("file/p", ours)
		if r.Set().ByAddr(ours[0].Addr).Source != "file/p" {
			t.Errorf("source %q", r.Set().ByAddr(ours[0].Addr).Source)
		}
		r.Apply("file/p", ours[1:])
		time.Sleep(time.Minute)
		r.Farewell(ours[1].Addr, "its lease ended")
		r.Apply("file/p", ours[2:])
		want := "p/b: its lease ended\np/a: its source, file/p, names it no longer"
		if got := left(); got != want || gone() != 2 {
			t.Errorf("%d gone:\n%s\nwant\n%s", gone(), got, want)
		}
		back := ours[0]
		back.Addr = netip.MustParseAddrPort("10.9.9.9:8000") // under another address
		r.Apply("file/p", []Spec{back, ours[2]})
		if got := left(); got != "p/b: its lease ended" || gone() != 1 {
			t.Errorf("after one came back: %d gone:\n%s", gone(), got)
		}
		time.Sleep(showDeparted)
		if got := left(); got != "" || gone() != 0 {
			t.Errorf("later: %d gone:\n%s", gone(), got)
		}
		r.Apply("file/p", append(specs("q/c"), back))
		if got := left(); got != "" {
			t.Errorf("who changed its pool did not leave:\n%s", got)
		}
		var crowd []Spec
		for i := range maxDeparted + 10 {
			addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 8000)
			crowd = append(crowd, Spec{Name: fmt.Sprint(i), Pool: "p", Addr: addr})
		}
		r.Apply("file/p", crowd)
		r.Apply("file/p", nil)
		if n := len(r.Departed()); n != maxDeparted || gone() != maxDeparted {
			t.Errorf("%d shown, %d counted, want %d", n, gone(), maxDeparted)
		}
	})
}
