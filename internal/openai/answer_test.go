package openai

import (
	"encoding/json"
	"testing"
)

func TestAppendError(t *testing.T) {
	for _, c := range []struct {
		typ, code, param, message string
		want                      string
	}{
		{"NotFoundError", "", "", "no such model", `>{"error":{"message":"no such model","type":"NotFoundError","param":null,"code":404}}`},
		{"invalid_request_error", "model_not_found", "model", "the model \"a\nb\" does not exist",
			`>{"error":{"message":"the model \"a\nb\" does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}`},
		{"", "\x00", "\xff", "é", ">{\"error\":{\"message\":\"é\",\"type\":\"\",\"param\":\"\ufffd\",\"code\":\"\\u0000\"}}"},
	} {
		got := AppendError([]byte(">"), 404, c.typ, c.code, c.param, c.message)
		if string(got) != c.want || !json.Valid(got[1:]) {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
