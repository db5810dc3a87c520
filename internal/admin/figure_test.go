package admin

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

func TestFigure(t *testing.T) {
	for _, c := range []struct {
		in   Figure
		want string
	}{
		{Figure{}, "null"}, {Known(math.NaN()), "null"}, {Known(math.Inf(-1)), "null"}, {Share(0, 0), "null"}, {Share(3, 0), "null"},
		{Known(0), "0"}, {Known(-1e-9), "0"}, {Known(7), "7"}, {Known(uint64(1) << 40), "1099511627776"}, {Share(1, 3), "0.333333"},
		{Seconds(1500 * time.Millisecond), "1.5"}, {Known(-2.25), "-2.25"}, {Known(1e300), "1e+300"},
	} {
		got, err := json.Marshal(c.in)
		if err != nil || string(got) != c.want {
			t.Errorf("%+v: %s, %v; want %s", c.in, got, err, c.want)
		}
		var back Figure
		if err := json.Unmarshal(got, &back); err != nil || back.known != c.in.known {
			t.Errorf("%s comes back as %+v, %v", got, back, err)
		}
	}
	if err := new(Figure).UnmarshalJSON([]byte(`"x"`)); err == nil {
		t.Error("a string is taken for a number")
	}
	if v, ok := Known(2).Get(); v != 2 || !ok {
		t.Errorf("Get: %v %v", v, ok)
	}
}
