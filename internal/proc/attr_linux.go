package proc

import "syscall"

// attributes make the kernel kill the child when its parent dies, and keep a terminal's Ctrl-C from reaching it: the
// parent ends it in its own order.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
