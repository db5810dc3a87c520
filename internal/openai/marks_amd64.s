#include "textflag.h"

// BYTES fills a register with sixteen times a byte.
#define BYTES(value, x) \
	MOVQ       $value, AX; \
	MOVQ       AX, x;      \
	PUNPCKLQDQ x, x

// SIXTEEN looks at the 16 bytes at an offset, and says in the lower 16 bits of three registers which of them are
//
//	ends     quotes and control characters. Flipping 0x02 turns the quote, 0x22, into 0x20, and only permutes the control
//	         characters; subtraction that saturates at zero then leaves zero for all that are at most 0x20
//	slashes  backslashes
//	usual    those that may stand behind a backslash in an escape of two bytes: quote, backslash, b and r, which differ in 0x10, f
//	         and n, which differ in 0x08, and t
#define SIXTEEN(offset, ends, slashes, usual) \
	MOVOU    offset(SI), X0; \
	MOVO     X0, X1;  \
	PXOR     X6, X1;  \
	PSUBUSB  X7, X1;  \
	PCMPEQB  X8, X1;  \
	MOVO     X0, X2;  \
	PCMPEQB  X9, X2;  \
	MOVO     X0, X3;  \
	PAND     X10, X3; \
	PCMPEQB  X11, X3; \
	MOVO     X0, X4;  \
	PAND     X12, X4; \
	PCMPEQB  X13, X4; \
	MOVO     X0, X5;  \
	PCMPEQB  X14, X5; \
	PCMPEQB  X15, X0; \
	POR      X2, X3;  \
	POR      X4, X5;  \
	POR      X0, X3;  \
	POR      X5, X3;  \
	PMOVMSKB X1, ends;    \
	PMOVMSKB X2, slashes; \
	PMOVMSKB X3, usual

// NEXT is SIXTEEN for bytes that are not the first ones of a piece.
#define NEXT(offset) \
	SIXTEEN(offset, R8, R9, R10); \
	SHLQ $offset, R8;  \
	SHLQ $offset, R9;  \
	SHLQ $offset, R10; \
	ORQ  R8, AX;       \
	ORQ  R9, BX;       \
	ORQ  R10, DX

// func mark(stops, slashes []uint64, b []byte, escaped uint64) (next uint64)
TEXT ·mark(SB), NOSPLIT, $0-88
	MOVQ stops_base+0(FP), DI
	MOVQ stops_len+8(FP), CX
	MOVQ slashes_base+24(FP), R13
	MOVQ b_base+48(FP), SI
	MOVQ escaped+72(FP), R11
	TESTQ CX, CX
	JZ    done

	BYTES(0x0202020202020202, X6)
	BYTES(0x2020202020202020, X7)
	PXOR X8, X8
	BYTES(0x5c5c5c5c5c5c5c5c, X9)
	BYTES(0xefefefefefefefef, X10)
	BYTES(0x6262626262626262, X11)
	BYTES(0xf7f7f7f7f7f7f7f7, X12)
	BYTES(0x6666666666666666, X13)
	BYTES(0x7474747474747474, X14)
	BYTES(0x2222222222222222, X15)
	MOVQ $0xaaaaaaaaaaaaaaaa, R12

piece:
	SIXTEEN(0, AX, BX, DX)
	NEXT(16)
	NEXT(32)
	NEXT(48)
	MOVQ BX, (R13)

	// Of a row of backslashes the first one escapes, the second is escaped, and so on; bit 0 of R11 says that the first byte
	// is escaped. Taking the backslashes (R8) from the bits behind them carries through every row: with all odd bits set
	// beforehand, what differs from those afterwards (R9) is, in every row, each second bit from the first on, and the bit that the last
	// one of these escapes (simdjson, json_escape_scanner).
	MOVQ R11, R8
	NOTQ R8
	ANDQ BX, R8
	LEAQ (R8)(R8*1), R9
	ORQ  R12, R9
	SUBQ R8, R9
	XORQ R12, R9
	MOVQ BX, R10
	ORQ  R11, R10
	XORQ R9, R10 // those that are escaped
	ANDQ BX, R9
	SHRQ $63, R9
	MOVQ R9, R11

	// A stop is an end that is not escaped, or what is escaped and not usual.
	MOVQ R10, R8
	NOTQ R8
	ANDQ R8, AX
	NOTQ DX
	ANDQ R10, DX
	ORQ  DX, AX
	MOVQ AX, (DI)

	ADDQ $64, SI
	ADDQ $8, DI
	ADDQ $8, R13
	DECQ CX
	JNZ  piece

done:
	MOVQ R11, next+80(FP)
	RET
