// Package direct lets replicas tell each other what they decide without anything between them: no Redis, nothing to run beside.
//
// Every replica listens, and follows every other one that its configuration or DNS names. Who follows is told each record that
// the followed one publishes, over one gRPC stream per pool:
//
//	a: Publish ──> hub ──queue per subscriber──> stream ──> b: follower ──> Events
//	                                        └──> stream ──> c: follower ──> Events
//
// The beginning of a stream is in handshake.go, who is there to be followed in directory.go.
//
// A Link over a shared log has one order for everybody. This one keeps the order of each replica's records, and says nothing of
// one replica's against another's: all that a replica is told of another comes from that other, so nothing more is needed. A
// replica does not get its own records back.
//
// Nobody waits for the slow: a subscriber with more than the buffer before it is cut off. It comes again, and asks for
// everything, as one that has just started does.
package direct
