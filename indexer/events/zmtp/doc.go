// Package zmtp is ZeroMQ without libzmq: SUB, DEALER, PUB and ROUTER sockets that speak ZMTP 3.0 (RFC 23/ZMTP) with the
// NULL mechanism, and the heartbeats of ZMTP 3.1 (RFC 37/ZMTP), which libzmq answers in either version.
//
// In the common case a Sub dials an engine's publisher, shakes hands, subscribes, and hands every message to a function
// until its context ends:
//
//	we                                                     publisher
//	greeting: ff … 7f 03 00 NULL, 64 bytes     →
//	                                           ←           greeting
//	READY Socket-Type=SUB                      →
//	                                           ←           READY Socket-Type=PUB
//	message 01 topic                           →
//	                                           ←           message topic | sequence | payload
//	PING, after a silence                      →
//	                                           ←           PONG
//
// A connection that ends is dialled again after a pause; what was published in between is lost, as with every PUB. A
// reader of sequence numbers must therefore look for gaps, whatever the client.
//
// One goroutine serves one endpoint, or one peer of a bound socket. It parses messages in the buffer that the kernel
// filled, so receiving copies and allocates nothing; the price is that a Message is valid only until its receiver returns.
// The rejected way, a channel of messages, costs an allocation and a copy each, and hides the back-pressure.
//
// Pub and Router exist for simulated engines and tests. They do less than libzmq's and say what.
package zmtp
