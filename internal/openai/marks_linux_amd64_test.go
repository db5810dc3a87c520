package openai

import (
	"os"
	"syscall"
	"testing"
)

// Nothing behind the end of a text is read: here it ends where a page does, and the next page may not be touched.
func TestMarksStayWithinTheText(t *testing.T) {
	page := os.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Munmap(memory); err != nil {
			t.Error(err)
		}
	}()
	if err := syscall.Mprotect(memory[page:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for i := range page {
		memory[i] = 'x'
	}
	for n := range 1300 {
		b := memory[page-n : page : page]
		if end, _, ok := (&scanner{b: b}).stringEnd(0); end != n || ok {
			t.Fatalf("the end of %d bytes without a quote is found at %d, %v", n, end, ok)
		}
	}
}
