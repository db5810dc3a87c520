// Package golden compares what tests get with what testdata says, and plays scripts that a reader can check by hand. Only tests
// import it. "go test PACKAGE -rewrite" writes testdata anew from what the code does: read the difference before you keep it.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write testdata from what the code does; read the difference before you keep it")

// Compare fails the test where got differs from testdata/name.
func Compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// Scripts plays testdata/*.txt, each from its own start, and compares what they print. A script is parts with an empty line between
// them; a part is comments, commands, a line of dashes, and what the commands print. Start returns what runs the words of a command.
func Scripts(t *testing.T, start func(t *testing.T) (run func(words []string) string)) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			Compare(t, filepath.Base(file), play(string(script), start(t)))
		})
	}
}

// play is the script with what its commands print now.
func play(script string, run func(words []string) string) string {
	var out strings.Builder
	for part := range strings.SplitSeq(strings.TrimSpace(script), "\n\n") {
		lines := strings.Split(part, "\n")
		for len(lines) > 0 && strings.HasPrefix(lines[0], "#") {
			out.WriteString(lines[0] + "\n")
			lines = lines[1:]
		}
		var printed strings.Builder
		for len(lines) > 0 && lines[0] != "----" {
			out.WriteString(lines[0] + "\n")
			if result := run(strings.Fields(lines[0])); result != "" {
				printed.WriteString(strings.TrimSuffix(result, "\n") + "\n")
			}
			lines = lines[1:]
		}
		if printed.Len() > 0 {
			out.WriteString("----\n" + printed.String())
		}
		out.WriteByte('\n')
	}
	return strings.TrimSuffix(out.String(), "\n")
}
