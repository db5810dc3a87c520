// Package data holds the recorded workloads that measurements of this repository run on. README.md says where they come from.
package data

import (
	"embed"
	"io/fs"
)

// The files, all compressed with gzip.
const (
	// Conversation and Synthetic are rows of the Mooncake format.
	Conversation = "conversation.jsonl.gz"
	Synthetic    = "synthetic.jsonl.gz"
	// Jittered has, for each of the first 4,000 rows of Conversation, one line with another arrival in milliseconds.
	Jittered = "jittered.txt.gz"
	// Sessions has one session of a coding agent per line.
	Sessions = "sessions.jsonl.gz"
)

//go:embed *.gz
var files embed.FS

// Open opens one of the files.
func Open(name string) (fs.File, error) { return files.Open(name) }
