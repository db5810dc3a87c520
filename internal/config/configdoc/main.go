// Configdoc writes docs/configuration.md from the code: every field of the configuration with its default, and what its
// doc comment says. `make generate` runs it; a test keeps the page current.
package main

import (
	"fmt"
	"os"
)

func main() {
	page, err := Page(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(page)
}
