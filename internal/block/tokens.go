package block

import (
	"encoding/binary"
	"slices"
	"unsafe"
)

// AppendBlocks appends to chain the sequence hashes of the complete blocks of ids, each of size tokens (at least 1), in the
// namespace of seed (see Seed). What chain holds already are the blocks before: the last one is the parent of the first that is
// added. Tokens after the last complete block are left to the caller, who brings them again in front of what follows them.
func AppendBlocks(chain []Hash, ids []uint32, size int, seed uint64) []Hash {
	n := len(ids) / size
	if n == 0 {
		return chain
	}
	chain = slices.Grow(chain, n)
	var buffer []byte
	if !littleEndian {
		buffer = make([]byte, 0, 4*size)
	}
	for ; n > 0; n-- {
		if piece, before := tokenBytes(ids[:size], buffer), len(chain); before > 0 {
			chain = append(chain, link(chain[before-1], Local(piece, Plain)))
		} else {
			chain = append(chain, Local(piece, seed))
		}
		ids = ids[size:]
	}
	return chain
}

// littleEndian says that a uint32 in memory is already what is hashed.
var littleEndian = binary.NativeEndian.Uint32([]byte{1, 0, 0, 0}) == 1

// tokenBytes are the ids as they are hashed, 4 bytes each, little-endian: where they lie, if the machine stores them so,
// else in buffer.
func tokenBytes(ids []uint32, buffer []byte) []byte {
	if littleEndian {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), 4*len(ids)) //nolint:gosec // every uint32 is 4 bytes
	}
	return portableBytes(ids, buffer)
}

// portableBytes is tokenBytes for every machine.
func portableBytes(ids []uint32, buffer []byte) []byte {
	buffer = buffer[:0]
	for _, id := range ids {
		buffer = binary.LittleEndian.AppendUint32(buffer, id)
	}
	return buffer
}

// AppendLocals appends to locals the hashes of the complete blocks of ids, each of size tokens (at least 1) and on its own:
// what AppendBlocks chains. The first is hashed with seed, that of the namespace if the block begins a prompt, the others
// with Plain.
func AppendLocals(locals []uint64, ids []uint32, size int, seed uint64) []uint64 {
	n := len(ids) / size
	locals = slices.Grow(locals, n)
	var buffer []byte
	if !littleEndian {
		buffer = make([]byte, 0, 4*size)
	}
	for ; n > 0; n-- {
		locals = append(locals, Local(tokenBytes(ids[:size], buffer), seed))
		ids, seed = ids[size:], Plain
	}
	return locals
}
