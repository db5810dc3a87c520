// Package wholefile replaces files as a whole: who reads them finds the former content or the new one, never a part.
package wholefile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Replace puts what write writes in the place of the file at path, when all of it is on the disk; the folder must exist. After an
// error the former file is as it was. The file is readable by its owner only.
func Replace(path string, write func(to io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone when all went well
	if err := errors.Join(write(tmp), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
