package jinja

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

func TestFromJSON(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{`{"b": 1, "a": 2, "b": 3}`, `{"b": 3, "a": 2}`},
		{` [1, -0, 1.0, 1e2, -1.5E-3, 12345678901234567890, 1e999] `, `[1, 0, 1.0, 100.0, -0.0015, 12345678901234567890, Infinity]`},
		{`"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"`, `"a\"\\/\b\f\n\r\té😀"`},
		{`"\ud83d x \ude00 \ud83d\u0041"`, `"� x � �A"`},
		{`[true, false, null, {}, [], ""]`, `[true, false, null, {}, [], ""]`},
		{`{"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"1":0}`,
			`{"1": 0, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7, "8": 8, "9": 9}`},
		{`["long enough for eight at a time\n", "and so is this one é, without any escape"]`,
			`["long enough for eight at a time\n", "and so is this one é, without any escape"]`},
	} {
		v, err := FromJSON([]byte(c.data))
		if err != nil {
			t.Errorf("%s: %v", c.data, err)
			continue
		}
		vars := NewDict(1)
		vars.Set("v", v)
		if got := outcomeOf("{{ v|tojson }}", vars); got.text != c.want {
			t.Errorf("%s: got %s, want %s", c.data, got.text, c.want)
		}
	}
}

func TestFromJSONErrors(t *testing.T) {
	for _, c := range []struct {
		data   string
		offset int
	}{
		{"", 0}, {"  ", 2}, {"[1,]", 3}, {"[1 2]", 3}, {`{"a" 1}`, 5}, {`{a: 1}`, 1}, {`{"a": 1,}`, 8}, {"01", 0}, {"-", 1},
		{"1.x", 2}, {"1e", 2}, {"tru", 0}, {"NaN", 0}, {`"a`, 0}, {"\"a\nb\"", 2}, {`"ab\x"`, 3}, {`"\u12g4"`, 1}, {"1 2", 2},
		{"\"\xff\"", 1}, {"\"\xed\xa0\x80\"", 1}, {strings.Repeat("[", 600), 501}, {strings.Repeat("1", 5000), 0},
	} {
		_, err := FromJSON([]byte(c.data))
		var dataError *DataError
		if !errors.As(err, &dataError) || dataError.Offset != c.offset {
			t.Errorf("%.40s: got %v, want an error at %d", c.data, err, c.offset)
		}
	}
}

// TestDecoderKeepsWhatItMade: values stay as they are while more are made, until Reset.
func TestDecoderKeepsWhatItMade(t *testing.T) {
	var d Decoder
	for range 3 {
		var texts []string
		for i := range 50 {
			want := strings.Repeat(strconv.Itoa(i)+"\n", i*i)
			v, err := d.Decode([]byte(strconv.Quote(want)))
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, v.Text())
		}
		for i, got := range texts {
			if want := strings.Repeat(strconv.Itoa(i)+"\n", i*i); got != want {
				t.Fatalf("text %d is %.40q, want %.40q", i, got, want)
			}
		}
		d.Reset()
	}
}
