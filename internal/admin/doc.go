// Package admin is the operator's view of a running attache: metrics, health, a JSON API and a dashboard, on one HTTP
// listener of its own.
//
// It knows none of the packages it shows. It declares plain records (Status, Pool, Worker, Decision, Series, Readiness)
// and one interface, Source, that hands them out; whoever wires the process fills them from router, workers and xDS.
//
// In the common case nothing happens: no request is routed through here, and nothing is computed while nobody looks.
// A browser that opens the page gets the embedded files and then one server-sent event stream. As long as at least one
// stream is open, a single loop asks the Source once per refresh, marshals the answer once, and hands the same bytes to
// every viewer; a viewer that is too slow skips frames instead of holding up the others.
//
// Workers register themselves here, if that is configured; what they may say is defined by internal/worker/register.
//
// There is no authentication but the token of workers that register: the listener belongs on loopback or on a private network. What a web page of another
// origin sends is refused, the dashboard loads nothing from outside, and secrets in the configuration are blanked by key
// name even when the Source has already done so.
package admin
