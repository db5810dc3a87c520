package admin

import (
	"bytes"
	"embed"
	"fmt"
	"hash/fnv"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"time"
)

//go:embed assets
var assets embed.FS

// pagePolicy lets the page load its own files and talk to its own server, and nothing else. Trusted types make the
// browser refuse markup made from strings, so that a name from outside can never become code.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// files are the dashboard's, held with their types and content tags.
type files struct{ byName map[string]file }

type file struct {
	body        []byte
	contentType string
	tag         string
}

func newFiles() (*files, error) {
	f := &files{byName: map[string]file{}}
	entries, err := fs.ReadDir(assets, "assets")
	if err != nil {
		return nil, fmt.Errorf("embedded dashboard: %w", err)
	}
	for _, e := range entries {
		body, err := fs.ReadFile(assets, path.Join("assets", e.Name()))
		if err != nil {
			return nil, fmt.Errorf("embedded dashboard: %w", err)
		}
		sum := fnv.New64a()
		_, _ = sum.Write(body) // a hash does not fail
		f.byName[e.Name()] = file{body, contentType(e.Name()), fmt.Sprintf(`"%016x"`, sum.Sum64())}
	}
	return f, nil
}

// contentType does not ask the operating system's tables for the types that a page depends on.
func contentType(name string) string {
	switch ext := path.Ext(name); ext {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return mime.TypeByExtension(ext)
	}
}

func (f *files) page(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", pagePolicy)
	w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
	f.byName["index.html"].serve(w, r)
}

func (f *files) asset(missing http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		it, ok := f.byName[r.PathValue("name")]
		if !ok || r.PathValue("name") == "index.html" { // the page has one address, with its policy
			missing(w, r)
			return
		}
		it.serve(w, r)
	}
}

func (it file) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", it.contentType)
	w.Header().Set("ETag", it.tag)
	w.Header().Set("Cache-Control", "no-cache") // keep, but ask: a new binary brings new files
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(it.body))
}
