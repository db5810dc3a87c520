package jinja

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

func mustParse(t testing.TB, source string) *Template {
	t.Helper()
	template, err := Parse("t", source)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func TestPositions(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"a\n{% if %}", `t:2:7: found end of the block, expected an expression`},
		{"{{ 'é' ! }}", `t:1:8: found '!', expected an expression`},
		{"a\n  {{ x.y.z }}", `t:2:7: "x" is undefined`},
		{"{% for a in b %}\n{{ 1 + 'é' +\n 2 }}{% endfor %}", `t:2:6: unsupported operand types for +: "int" and "str"`},
		{"é{{ raise_exception('no') }}", `t:1:20: no`},
		{"{{ [1]|join(',')|nope }}", `t:1:18: found the filter "nope", expected one that exists`},
		{"\n\n{{ 5|first }}", `t:3:6: "int" object is not iterable`},
		{"{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}{{ m() }}", `t:2:6: division by zero`},
		{"{{ 'a' is odd }}", `t:1:8: not all arguments converted during string formatting`},
		{"{% set a, b = 1 %}", `t:1:4: "int" object is not iterable`},
	} {
		template, err := Parse("t", c.source)
		if err == nil {
			b := NewDict(1)
			b.Set("b", List([]Value{None()}))
			_, err = template.Render(nil, b, Options{})
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%q: got %v, want %s", c.source, err, c.want)
		}
	}
}

func TestBudgets(t *testing.T) {
	deep := NewDict(1)
	v := Int(1)
	for range 2000 {
		v = List([]Value{v})
	}
	deep.Set("deep", v)
	for _, c := range []struct {
		source  string
		options Options
		want    Budget
	}{
		{"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", Options{}, Steps},
		{"{% for a in range(1000) %}x{% endfor %}", Options{MaxSteps: 1000}, Steps},
		{"{{ 'x' * 1000 }}", Options{MaxOutput: 999}, Output},
		{"{% set x = 'x' * 1000 %}", Options{MaxOutput: 999}, Output},
		{"{% for a in range(1000) %}xx{% endfor %}", Options{MaxOutput: 1999}, Output},
		{"{% set x = ['x' * 1000] * 1000 %}{{ x }}", Options{MaxOutput: 100_000}, Output},
		{"{% set ns = namespace(x='abc') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", Options{}, Output},
		{"{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", Options{}, Steps},
		{"{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}", Options{}, Steps},
		{"{% set ns = namespace(x=[1], y=[1]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}" +
			"{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}", Options{}, Steps},
		{"{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}", Options{}, Steps},
		{"{% set ns = namespace(d=[]) %}{{ dict(range(99999)|batch(2)|map('list')|list)|length }}", Options{}, Steps},
		{"{{ ('a ' * 6000000).split() }}", Options{}, Steps},
		{"{{ ('a,' * 6000000).split(',') }}", Options{}, Steps},
		{"{{ ''.join(['x' * 1000] * 1000) }}", Options{MaxOutput: 100_000}, Output},
		{"{{ 'x'.center(100000) }}", Options{MaxOutput: 1000}, Output},
		{"{{ ('x' * 500).replace('x', 'yyy') }}", Options{MaxOutput: 1000}, Output},
		{"{{ '%9999d' % 1 }}", Options{MaxOutput: 1000}, Output},
		{"{{ '{:9999}'.format(1) }}", Options{MaxOutput: 1000}, Output},
		{"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", Options{
			MaxSteps: 1 << 40, Deadline: time.Unix(1, 0),
		}, Time},
		{"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", Options{}, Depth},
		{"{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", Options{}, Depth},
		{"{{ deep }}", Options{}, Depth},
		{"{{ deep|tojson }}", Options{}, Depth},
	} {
		out, err := mustParse(t, c.source).Render([]byte("kept"), deep, c.options)
		var budget *BudgetError
		if !errors.As(err, &budget) || budget.Budget != c.want || budget.Line == 0 {
			t.Errorf("%s: got %v, want the budget of %s", c.source, err, c.want)
		}
		if string(out) != "kept" {
			t.Errorf("%s: got %d bytes, want what was there before", c.source, len(out))
		}
	}
}

func TestParseBounds(t *testing.T) {
	for _, source := range []string{
		strings.Repeat("{{ (", 1) + strings.Repeat("(", 10_000), strings.Repeat("{% if 1 %}", 10_000),
		"{{ " + strings.Repeat("-", 10_000) + "1 }}", "{{ a" + strings.Repeat(".a", 10_000) + " }}",
		"{{ 1" + strings.Repeat(" - 1", 10_000) + " }}", "{{ " + strings.Repeat("not ", 10_000) + "1 }}",
		"{{ 1" + strings.Repeat(" if 1 else 1", 10_000) + " }}", "{{ a" + strings.Repeat("|e", 10_000) + " }}",
		strings.Repeat("x", maxSource+1),
	} {
		var syntax *SyntaxError
		if _, err := Parse("t", source); !errors.As(err, &syntax) {
			t.Errorf("%.40s: got %v, want a syntax error", source, err)
		}
	}
}

// TestSharedKeys makes keys of tuples that share their parts: looking at all of them would take for ever.
func TestSharedKeys(t *testing.T) {
	source := "{% set ns = namespace(x=(1,)) %}{% for a in range(99) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}"
	var fault *Fault
	if _, err := mustParse(t, source).Render(nil, NewDict(0), Options{}); !errors.As(err, &fault) {
		t.Errorf("got %v, want a fault", err)
	}
}

func TestRenderAppends(t *testing.T) {
	template := mustParse(t, "{% macro m() %}m{% endmacro %}{% set x %}x{% endset %}{{ m() ~ x }}{{ m()|upper }}")
	out, err := template.Render([]byte("before "), NewDict(0), Options{})
	if err != nil || string(out) != "before mxM" {
		t.Errorf("got %q (%v)", out, err)
	}
}

func TestConcurrentRender(t *testing.T) {
	template := mustParse(t, string(readFile(t, "testdata", "templates", "qwen3.jinja")))
	all := conversations(t)
	want := map[string]outcome{}
	for name, vars := range all {
		want[name] = renderOutcome(template, vars)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for name, vars := range all {
				if got := renderOutcome(template, vars); got != want[name] {
					t.Errorf("%s: got %v, want %v", name, got, want[name])
				}
			}
		})
	}
	group.Wait()
}

func renderOutcome(template *Template, vars *Dict) outcome {
	out, err := template.Render(nil, vars, Options{Now: oracleTime})
	if err != nil {
		return outcome{"error", err.Error()}
	}
	return outcome{"ok", string(out)}
}

func TestVariables(t *testing.T) {
	template := mustParse(t, "{{ a }}{% set b = c %}{{ b }}{% for d in e %}{{ d }}{{ f }}{% endfor %}"+
		"{% macro m(g) %}{{ g }}{{ h }}{% endmacro %}{{ raise_exception }}")
	if got := strings.Join(template.Variables(), " "); got != "a c e raise_exception f h" {
		t.Errorf("got %q", got)
	}
}

func TestLoopsOver(t *testing.T) {
	for _, c := range []struct {
		source string
		want   bool
	}{
		{"{% for m in messages %}{{ m.content }}{% endfor %}", false},
		{"{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}", true},
		{"{% for m in messages %}{% for p in m['content'] %}{% endfor %}{% endfor %}", true},
		{"{% for m in messages[1:] %}{% for p in m['content']|list %}{% endfor %}{% endfor %}", true},
		{"{% for m in messages|reverse %}{% for p in m.content[:2] if p %}{% endfor %}{% endfor %}", true},
		{"{% set x = messages[1:] %}{% set y = x|list %}{% for m in y %}{% for p in m.content %}{% endfor %}{% endfor %}", true},
		{"{% set messages = messages[1:] %}{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}", true},
		{"{% set x = tools %}{% for m in x %}{% for p in m.content %}{% endfor %}{% endfor %}", false},
		{"{% for m in messages %}{% for p in m.parts %}{% endfor %}{% endfor %}", false},
		{"{% for m in messages %}{% set content = m.content %}{% for p in content %}{% endfor %}{% endfor %}", true},
		{"{% macro show(content) %}{% for p in content %}{% endfor %}{% endmacro %}", true},
		{"{% for m in messages %}{% set c = m.content %}{% for p in c %}{% endfor %}{% endfor %}", false},
		{"{% for i, m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}", false},
		{"{% set a, b = messages %}{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}", false},
		{"{% for m in messages %}{% if 1 %}{% with %}{% filter upper %}{% for p in m.content %}{% endfor %}{% endfilter %}{% endwith %}{% endif %}{% endfor %}", true},
	} {
		if got := mustParse(t, c.source).LoopsOver("messages", "content"); got != c.want {
			t.Errorf("%s: got %v, want %v", c.source, got, c.want)
		}
	}
}
