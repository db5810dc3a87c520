package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Await waits until a chat request through url is answered with 200, for 20 seconds at most. The error tells how the last
// attempt went.
func Await(ctx context.Context, url, model string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	body, err := json.Marshal(chatRequest{Model: model, Messages: []message{userSays("hello")}, MaxTokens: 1})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var last error
	for {
		err := attempt(ctx, client, url, body)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // an attempt that the end cut short tells nothing
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func attempt(ctx context.Context, client *http.Client, url string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := post(ctx, client, url, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 300))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return err
}
