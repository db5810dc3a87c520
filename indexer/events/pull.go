package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"attache/indexer/events/wire"
)

// How often TensorRT-LLM is asked: its answer waits up to 2 s for events by itself, unless there are any.
const (
	pullLeast = 10 * time.Millisecond
	pullMost  = 250 * time.Millisecond // while it has nothing to tell
	pullRetry = 5 * time.Second        // while it cannot be reached
	pullLimit = 10 * time.Second       // for one answer
)

// pull asks TensorRT-LLM for its events until ctx ends. Every event is told once, so an answer that is lost is a gap for good;
// the events' own numbers show it.
func (f *feed) pull(ctx context.Context) {
	client := &http.Client{Timeout: pullLimit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	client.Transport = &http.Transport{MaxIdleConnsPerHost: 1, DisableCompression: true}
	defer client.CloseIdleConnections()
	pause := pullLeast
	var page bytes.Buffer
	for ctx.Err() == nil {
		page.Reset()
		err := fetch(ctx, client, f.source.URL, &page)
		if ctx.Err() != nil {
			return
		}
		switch told := f.pulled(page.Bytes(), err); {
		case err != nil:
			pause = min(max(2*pause, pullMost), pullRetry)
		case told:
			pause = pullLeast
		default:
			pause = min(2*pause, pullMost)
		}
		select {
		case <-time.After(pause + rand.N(pause/4+1)):
		case <-ctx.Done():
		}
	}
}

// fetch gets one answer.
func fetch(ctx context.Context, client *http.Client, url string, into *bytes.Buffer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d on POST %s", resp.StatusCode, url)
	}
	if _, err := into.ReadFrom(io.LimitReader(resp.Body, wire.MaxPayload+1)); err != nil {
		return err
	}
	if into.Len() > wire.MaxPayload {
		return errors.New("the answer exceeds 64 MiB")
	}
	return nil
}

// pulled takes in one answer, and tells whether there was anything in it.
func (f *feed) pulled(page []byte, err error) (told bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.connected = false
		f.enter(Connecting, err.Error())
		return false
	}
	if !f.connected {
		f.connected, f.barred = true, false
	}
	f.heard = f.ledger.now()
	if err := f.batch.DecodeTensorRT(page); err != nil {
		f.unreadable(err)
		f.goLive()
		return true
	}
	told = len(f.batch.Events) > 0
	if told && !f.barred {
		if f.applier.page == 0 {
			f.applier.page = int(f.pageTokens.Load())
		}
		f.speaks()
		f.counts.Bytes += uint64(len(page))
		f.counts.Batches++
		f.checkNumbers()
		f.take(page)
	}
	f.goLive()
	return told
}

// checkNumbers finds gaps and restarts by the numbers of events: consecutive from 0 for each rank. Events of other ranks are left
// out; they have feeds of their own only where each has a port.
func (f *feed) checkNumbers() {
	mine := f.batch.Events[:0]
	for _, e := range f.batch.Events {
		if e.HasRank && int(e.Rank) != f.source.Rank {
			continue
		}
		switch {
		case f.seq.has && e.ID == f.seq.last: // one of several that were made of one
		case f.seq.has && e.ID == f.seq.last+1, !f.seq.has && e.ID == 0:
			f.complete = f.complete || e.ID == 0
		case e.ID == 0:
			mine = mine[:0]
			f.renew("its events begin anew")
			f.complete = true
		default:
			mine = mine[:0]
			if f.seq.has {
				f.counts.Gaps++
			}
			f.clear(fmt.Sprintf("events before %d are lost for good", e.ID))
		}
		f.seq.has, f.seq.last = true, e.ID
		mine = append(mine, e)
	}
	f.batch.Events = mine
}
