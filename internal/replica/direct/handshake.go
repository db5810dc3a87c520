package direct

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"
)

// How a stream begins:
//
//	follower                                  followed
//	greeting: pool, name, process, nonce ──>
//	                                     <──  greeting, proof
//	proof                                ──>
//	                                     <──  an empty frame: from here on every record is told
//
// A proof is what only a holder of the token can say of these two greetings, so that both know the other to be one, and the token
// itself is never sent, not even to whoever has taken over an address. Without a token both prove with an empty one.
// The process is a random number by which a replica knows itself, and one that it has found under two addresses.
//
// A greeting is a byte for the version, pool and name, each a length in one byte and so many bytes, and twice 16 bytes.

const (
	version          = 1
	proofBytes       = sha256.Size
	handshakeTimeout = 5 * time.Second
	mostText         = 255 // bytes of a pool's or replica's name
)

// random is a number that nobody else has.
type random [16]byte

func newRandom() (r random) {
	_, _ = rand.Read(r[:]) // never fails
	return r
}

// greeting is how a replica introduces itself on one stream.
type greeting struct {
	pool, name     string
	process, nonce random
}

var errGreeting = errors.New("no greeting of a replica")

func (g *greeting) append(to []byte) []byte {
	to = append(to, version)
	for _, s := range []string{g.pool, g.name} {
		to = append(append(to, byte(len(s))), s...)
	}
	to = append(to, g.process[:]...)
	return append(to, g.nonce[:]...)
}

// decode reads a greeting and returns what is behind it.
func (g *greeting) decode(b []byte) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, errGreeting
	}
	if b[0] != version {
		return nil, fmt.Errorf("%w of version %d: of version %d", errGreeting, version, b[0])
	}
	b = b[1:]
	for _, s := range []*string{&g.pool, &g.name} {
		if len(b) == 0 {
			return nil, errGreeting
		}
		n := int(b[0])
		if b = b[1:]; len(b) < n {
			return nil, errGreeting
		}
		*s, b = string(b[:n]), b[n:]
	}
	if len(b) < len(g.process)+len(g.nonce) {
		return nil, errGreeting
	}
	b = b[copy(g.process[:], b):]
	return b[copy(g.nonce[:], b):], nil
}

// decodeProven reads a greeting and the proof behind it.
func (g *greeting) decodeProven(b []byte) (proof []byte, err error) {
	proof, err = g.decode(b)
	if err == nil && len(proof) != proofBytes {
		return nil, errGreeting
	}
	return proof, err
}

// The two ends of a stream prove different things, so that neither can give back what it was told.
const (
	ofFollower = 'f'
	ofFollowed = 'F'
)

// prove says that whoever says it at an end knows the token.
func prove(token []byte, end byte, follower, followed *greeting) []byte {
	of := hmac.New(sha256.New, token)
	of.Write(followed.append(follower.append([]byte{end})))
	return of.Sum(nil)
}

// proven reports whether that was said, in the same time for every wrong proof.
func proven(proof, token []byte, end byte, follower, followed *greeting) bool {
	return hmac.Equal(proof, prove(token, end, follower, followed))
}
