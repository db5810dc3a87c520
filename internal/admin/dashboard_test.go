package admin

import (
	"encoding/json"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"
)

func readAssets(t *testing.T) map[string]string {
	t.Helper()
	entries, err := fs.ReadDir(assets, "assets")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		body, err := fs.ReadFile(assets, path.Join("assets", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(body)
	}
	return all
}

// The page is one that works offline and under its policy: nothing from outside, no markup from strings, no inline code.
func TestPageKeepsItsPolicy(t *testing.T) {
	for name, body := range readAssets(t) {
		body = strings.NewReplacer("http://www.w3.org/2000/svg", "", "http://ENVOY/v1/", "").Replace(body)
		for _, bad := range []string{"http://", "https://", "innerHTML", "outerHTML", "insertAdjacentHTML",
			"document.write", "eval(", "new Function", " style=\"", "onclick=", "<style", "@import", "url("} {
			if strings.Contains(body, bad) {
				t.Errorf("%s contains %q", name, bad)
			}
		}
	}
	policy := call(stopped(t, quiet(), newFake()), "GET", "/").Header().Get("Content-Security-Policy")
	for _, need := range []string{"default-src 'none'", "script-src 'self'",
		"require-trusted-types-for 'script'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, need) {
			t.Errorf("policy %q lacks %q", policy, need)
		}
	}
}

func TestPageFitsTogether(t *testing.T) {
	files := readAssets(t)
	script := ""
	for name, body := range files {
		if strings.HasSuffix(name, ".js") {
			script += body
		}
	}
	for _, m := range regexp.MustCompile(`\$\('([\w-]+)'\)`).FindAllStringSubmatch(script, -1) {
		if !strings.Contains(files["index.html"], `id="`+m[1]+`"`) {
			t.Errorf("the script asks for #%s, which the page does not have", m[1])
		}
	}
	used := regexp.MustCompile(`(?:from '\./|(?:src|href)="assets/)([\w.-]+)`)
	for _, m := range used.FindAllStringSubmatch(script+files["index.html"], -1) {
		if _, ok := files[m[1]]; !ok {
			t.Errorf("%s is used, but there is no such file", m[1])
		}
	}
	// Every snake_case name that the script reads is one that the state has.
	state, err := json.Marshal(reader{newFake(), stopped(t, quiet(), newFake()).view.now}.state())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\.([a-z]+(?:_[a-z0-9]+)+)\b`).FindAllStringSubmatch(script, -1) {
		if !strings.Contains(string(state), `"`+m[1]+`":`) {
			t.Errorf("the script reads .%s, which the state does not have", m[1])
		}
	}
}

func BenchmarkState500Workers(b *testing.B) {
	f := newFake()
	for i := range 492 {
		f.workers = append(f.workers, f.workers[i%8])
	}
	for len(f.made) < streamDecisions {
		f.made = append(f.made, f.made[0])
	}
	r := reader{f, time.Now}
	size := 0
	for b.Loop() {
		body, err := json.Marshal(r.state())
		if err != nil {
			b.Fatal(err)
		}
		size = len(body)
	}
	b.ReportMetric(float64(size), "bytes")
}
