package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// object is one of the cluster's, as its JSON.
type object = map[string]any

func metaOf(o object) object { return o["metadata"].(object) }

func keyOfObject(o object) string { return fmt.Sprint(metaOf(o)["namespace"], "/", metaOf(o)["name"]) }

// event is a change, as a watch tells it.
type event struct {
	Type    string `json:"type"`
	Object  object `json:"object"`
	path    string
	version int
}

// apiServer is as much of Kubernetes' API server as lists and watches need.
type apiServer struct {
	*httptest.Server

	mu        sync.Mutex
	changed   chan struct{}                // closed and replaced at every change
	objects   map[string]map[string]object // by path of the collection, then namespace/name
	events    []event
	version   int
	compacted int             // changes up to this version are forgotten
	forbidden map[string]bool // paths
	down      bool            // it takes no connection
	requests  map[string]int  // "list", "watch", "gone"
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{changed: make(chan struct{}), objects: map[string]map[string]object{}, forbidden: map[string]bool{}, requests: map[string]int{}}
	for _, path := range []string{pathSlices, pathPods} {
		s.objects[path] = map[string]object{}
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

const (
	pathSlices   = "/apis/discovery.k8s.io/v1/namespaces/models/endpointslices"
	pathPods     = "/api/v1/namespaces/models/pods"
	pathPool     = "/apis/inference.networking.k8s.io/v1/namespaces/models/inferencepools"
	pathPoolBeta = "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/models/inferencepools"
)

func (s *apiServer) client(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.URL, QPS: -1, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		s.mu.Lock()
		down := s.down
		s.mu.Unlock()
		if down {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// edit changes the server; whoever watches looks again.
func (s *apiServer) edit(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// put adds or changes objects.
func (s *apiServer) put(path string, objects ...object) {
	s.edit(func() {
		for _, o := range objects {
			kind := "ADDED"
			if s.objects[path] == nil {
				s.objects[path] = map[string]object{}
			}
			if s.objects[path][keyOfObject(o)] != nil {
				kind = "MODIFIED"
			}
			s.objects[path][keyOfObject(o)] = o
			s.tell(path, kind, o)
		}
	})
}

// remove deletes objects by name.
func (s *apiServer) remove(path string, names ...string) {
	s.edit(func() {
		for _, name := range names {
			o := s.objects[path]["models/"+name]
			delete(s.objects[path], "models/"+name)
			s.tell(path, "DELETED", o)
		}
	})
}

func (s *apiServer) tell(path, kind string, o object) {
	s.version++
	metaOf(o)["resourceVersion"] = strconv.Itoa(s.version)
	s.events = append(s.events, event{kind, runtime.DeepCopyJSON(o), path, s.version}) // later edits must not show in an old event
}

// forget replaces an object and drops all changes so far, this one included: every watch ends with the word that they cannot be had,
// and only a list tells of it.
func (s *apiServer) forget(path string, o object) {
	s.edit(func() {
		s.version++
		s.compacted = s.version
		s.objects[path][keyOfObject(o)] = o
	})
}

// fail breaks all connections and takes no new ones, or does again.
func (s *apiServer) fail(down bool) {
	s.edit(func() { s.down = down })
	if down {
		s.CloseClientConnections()
	}
}

func (s *apiServer) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[what]
}

// send writes JSON, and reports whether the client was there.
func send(w io.Writer, v any) bool { return json.NewEncoder(w).Encode(v) == nil }

func status(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	send(w, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason})
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	collection, known := s.objects[r.URL.Path]
	forbidden := s.forbidden[r.URL.Path]
	s.mu.Unlock()
	switch {
	case forbidden:
		status(w, http.StatusForbidden, "Forbidden")
	case !known:
		http.NotFound(w, r)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r)
	default:
		s.list(w, r, collection)
	}
}

// chosen reports whether an object meets a request's selectors.
func chosen(r *http.Request, o object) bool {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return false
	}
	set := labels.Set{}
	if list, ok := metaOf(o)["labels"].(object); ok {
		for key, value := range list {
			set[key] = fmt.Sprint(value)
		}
	}
	name, fields := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	return selector.Matches(set) && (!fields || metaOf(o)["name"] == name)
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request, collection map[string]object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests["list"]++
	items := []object{}
	for _, o := range collection {
		if chosen(r, o) {
			items = append(items, o)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	send(w, object{"kind": "List", "apiVersion": "v1", "metadata": object{"resourceVersion": strconv.Itoa(s.version)}, "items": items})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	s.mu.Lock()
	gone := from < s.compacted
	s.requests[map[bool]string{false: "watch", true: "gone"}[gone]]++
	s.mu.Unlock()
	if gone {
		status(w, http.StatusGone, "Expired")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for {
		_ = http.NewResponseController(w).Flush()
		s.mu.Lock()
		changed, gone := s.changed, from < s.compacted
		for _, e := range s.events {
			if e.version > from && e.path == r.URL.Path && chosen(r, e.Object) {
				send(w, e)
			}
		}
		from = max(from, s.version)
		if gone {
			s.requests["gone"]++
			send(w, event{Type: "ERROR", Object: object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}})
		}
		s.mu.Unlock()
		if gone {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
