// Package register takes in workers that register themselves, and keeps them known to every gateway.
//
// In the common case a worker registers at one gateway, is told how long its lease lasts, and sends a heartbeat every third of that. The
// gateway puts what was said into a store that all gateways share; each of them lists the store twice a second, and gives its registry
// what it finds. A worker that says goodbye leaves a mark in the store, so that the others know at once, and why; one that falls silent
// goes when its lease ends, by the store's clock.
//
//	worker --register, heartbeat, goodbye--> Registrations --Put--> Store <--Members-- Registrations of other gateways
//	                                              |                                        |
//	                                           Registry                                 Registry
//
// While the store cannot be reached nobody is given up: the list stays as it was, what workers say meanwhile counts here, and is put into
// the store when it is back. A store that comes back empty has forgotten everybody: then all have one more lease to be heard of.
package register
