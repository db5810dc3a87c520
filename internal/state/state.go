// Package state is what replicas of attache share: a log that all of them read in one order, blobs, leases, and who leads.
//
// The common case is a background loop of one replica that appends what happened to a stream, and of the others that read it a few
// milliseconds later. Nothing on the path of a request waits for this package: what requests need lies in the memory of their replica, and
// the store only carries it from one to the other.
//
// There are two stores with the same behaviour, held to it by one suite (statetest): Memory, for a single process and for tests in which
// several replicas share one, and Redis, 6.2 or newer or Valkey, alone, behind sentinels or as a cluster. A store that is away costs its
// caller an error, never more time than the call was given.
package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// Store is everything that replicas share. Users declare the few methods that they need. All methods are safe for concurrent use. Values
// are copied when they are given, and must not be changed when they were returned.
//
// Names of streams, keys, groups, leaders, members and owners are 1 to 256 bytes of UTF-8 without control characters; all but those of
// members and owners without braces. A call ends with its context's deadline, and after Config.Timeout where there is none.
type Store interface {
	Log
	Blobs
	Leases
	Leader

	// Health is how the store was when it was last asked, which Run does. It never waits.
	Health() Health
	// Run watches the store until ctx ends.
	Run(ctx context.Context) error
	// Close gives up all connections; calls that are under way fail.
	Close() error
}

// Log holds streams: what is appended to one is read by everybody in the same order.
type Log interface {
	// Append adds records to the end of a stream, all of them or none, next to each other and in their order. When it fails, nothing says
	// whether they were added; it is never done twice. A stream keeps about its newest Config.MaxStreamLength records, for Config.StreamTTL
	// after the last one. At most 1024 records may be given, each of at most Config.MaxRecord.
	Append(ctx context.Context, stream string, records ...[]byte) error
	// End is the position after the last record of a stream; that of an empty one is before its first.
	End(ctx context.Context, stream string) (position string, err error)
	// Read returns at most most records, 1 to 10000, that came after a position, oldest first; "" is before the first record there ever was.
	// When there is nothing it waits at most wait, and then returns nothing; the end of ctx ends it at once. lost says that records after
	// the position cannot be had any more: they were trimmed away, or the store has forgotten its streams, which shows with the first record
	// that comes after that. Reading then goes on with the oldest there is.
	Read(ctx context.Context, stream, after string, most int, wait time.Duration) (records []Record, lost bool, err error)
}

// Blobs holds whole values.
type Blobs interface {
	// Save keeps a value, of at most Config.MaxValue, under a key for ttl; 0 is until it is deleted.
	Save(ctx context.Context, key string, value []byte, ttl time.Duration) error
	// Load returns the value of a key, or ErrNone.
	Load(ctx context.Context, key string) ([]byte, error)
	// Delete removes the value of a key, if there is one. The token that SaveFenced remembers stays.
	Delete(ctx context.Context, key string) error
}

// Leases holds groups of members, each there until its lease ends.
type Leases interface {
	// Put makes a member of a group, or renews it, until ttl, at least 1 ms, from now by the clock of the store. value has at most
	// Config.MaxRecord. A group that holds Config.MaxMembers takes no further ones: ErrFull.
	Put(ctx context.Context, group, member string, value []byte, ttl time.Duration) error
	// Remove ends a membership, if there is one.
	Remove(ctx context.Context, group, member string) error
	// Members are those whose lease has not ended, by name.
	Members(ctx context.Context, group string) ([]Member, error)
}

// Leader says who may do what only one replica is to do.
type Leader interface {
	// Acquire makes owner the leader until ttl, at least 1 ms, from now by the clock of the store, or renews that, unless somebody else
	// leads; then token is 0. The token stays the same while the lead is renewed in time, and grows whenever the lead is taken anew.
	Acquire(ctx context.Context, name, owner string, ttl time.Duration) (token uint64, held bool, err error)
	// Release gives up the lead, if owner has it.
	Release(ctx context.Context, name, owner string) error
	// SaveFenced is Save, unless the key was saved with a newer token before: then nothing is changed, and stale is true. Tokens are
	// remembered for a day longer than the value, which Save and Delete do not change.
	SaveFenced(ctx context.Context, key string, value []byte, token uint64, ttl time.Duration) (stale bool, err error)
}

// Record is an entry of a stream.
type Record struct {
	// Position is where reading goes on after this record. It means something to the store and the stream that it came from only.
	Position string
	Value    []byte
}

// Member is somebody in a group.
type Member struct {
	Name  string
	Value []byte
	// Left is how long the lease runs when it is not renewed, above 0.
	Left time.Duration
}

// Errors that callers tell apart.
var (
	// ErrNone says that a key has no value. It is an fs.ErrNotExist, too.
	ErrNone = fmt.Errorf("no such value: %w", fs.ErrNotExist)
	// ErrTooLarge says that a value, or a number of records, is above its bound.
	ErrTooLarge = errors.New("too large")
	// ErrFull says that a group has as many members as it may have.
	ErrFull = errors.New("the group is full")
	// ErrArgument says that a name, a time or a position is none.
	ErrArgument = errors.New("bad argument")
)
