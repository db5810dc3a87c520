package main

import (
	"os"
	"testing"
)

func TestThePageIsCurrent(t *testing.T) {
	want, err := Page("../../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/configuration.md is not what the code says: run `make generate` and commit the result")
	}
}
