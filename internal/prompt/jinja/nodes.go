package jinja

// The tree. Nodes are made by the parser, completed by the resolver (scope.go), and never changed afterwards: renderings
// share them.

// expression is a node with a value.
type expression interface {
	// eval is the value. Errors without a position get one from the nearest node that has.
	eval(r *renderer) (Value, error)
}

// statement is a node that is carried out.
type statement interface {
	exec(r *renderer) (signal, error)
}

// signal tells what comes after a statement.
type signal uint8

const (
	proceed signal = iota
	breakLoop
	continueLoop
)

type (
	constant struct{ value Value }

	// name is a variable that is read or assigned. Where it lives is found out by the resolver.
	name struct {
		text  string
		pos   int32
		place place
	}

	listLiteral  struct{ items []expression }
	tupleLiteral struct{ items []expression }
	dictLiteral  struct {
		keys, values []expression
		pos          int32
	}

	attribute struct {
		object expression
		name   string
		pos    int32
	}
	subscript struct {
		object, index expression
		pos           int32
	}
	slicing struct{ start, stop, step expression } // each may be nil

	call struct {
		arguments

		callee expression
		pos    int32
	}
	filter struct {
		arguments

		operand expression // nil at the beginning of a filter block
		name    string
		run     filterFunc // nil if there is no such filter
		pos     int32
	}
	test struct {
		arguments

		operand expression
		name    string
		run     testFunc // nil if there is no such test
		pos     int32
	}

	unary struct {
		operator byte // '-', '+'
		operand  expression
		pos      int32
	}
	not    struct{ operand expression }
	binary struct {
		operator    operator
		left, right expression
		pos         int32
	}
	// sum is a chain of additions: most templates glue texts together with it.
	sum struct {
		terms     []expression
		positions []int32 // of the plus signs
	}
	concat struct {
		terms []expression
		pos   int32
	}
	and     struct{ left, right expression }
	or      struct{ left, right expression }
	compare struct {
		first expression
		rest  []comparison
		pos   int32
	}
	conditional struct{ test, yes, no expression } // no may be nil
)

type comparison struct {
	operator string
	operand  expression
}

// arguments of a call.
type arguments struct {
	positional []expression
	keywords   []keyword
	spread     expression // *x, or nil
	spreadKeys expression // **x, or nil
}

type keyword struct {
	name  string
	value expression
}

type operator uint8

const (
	opSub operator = iota
	opMul
	opDiv
	opFloorDiv
	opMod
	opPow
)

type (
	text     struct{ text string }
	printing struct {
		value expression
		pos   int32
	}
	ifStatement struct {
		branches  []branch
		otherwise []statement
	}
	forStatement struct {
		target    expression
		iter      expression
		test      expression // nil if there is none
		body      []statement
		otherwise []statement
		recursive bool
		pos       int32

		// From the resolver.
		testTarget expression // the target in the scope of the test
		testScope  []preset
		bodyScope  []preset
		elseScope  []preset
		loop       place    // of the variable loop, if the body uses it
		usesLoop   bool     //
		routine    *routine // of the body, if the loop is recursive
	}
	set struct {
		target expression
		value  expression
		pos    int32
	}
	setBlock struct {
		target expression
		filter *filter // nil if there is none
		body   []statement
		scope  []preset
		pos    int32
	}
	with struct {
		targets []expression
		values  []expression
		body    []statement
		scope   []preset
		pos     int32
	}
	filterBlock struct {
		filter *filter
		body   []statement
		scope  []preset
	}
	macroStatement struct {
		name    *name
		routine *routine
	}
	callBlock struct {
		call    *call
		routine *routine
		pos     int32
	}
	// generation marks what the model wrote, for training. The text of its body counts, and nothing else.
	generation struct {
		routine *routine
		pos     int32
	}
	block struct {
		body  []statement
		scope []preset
	}
	jump        struct{ signal signal }
	unsupported struct {
		tag string
		pos int32
	}
)

type branch struct {
	test expression
	body []statement
}

// routine is a piece of template with a frame of its own: a macro, the body of a call block, or of a recursive loop.
type routine struct {
	name     string
	params   []*name
	defaults []expression // of the last parameters
	body     []statement
	pos      int32

	// From the resolver.
	slots      int // size of the frame
	scope      []preset
	caller     place // of the special variables that the body uses
	kwargs     place
	varargs    place
	usesCaller bool
	usesKwargs bool
	usesArgs   bool
	hasCaller  bool // caller is among the parameters
}

// place tells where a variable lives.
type place struct {
	kind  placeKind
	up    int16 // frames outwards, of a slot
	index int32 // of the slot in its frame, or of the variable among the template's globals
}

type placeKind uint8

const (
	inSlot placeKind = iota
	inGlobals
)

// preset is what a slot holds when its scope is entered.
type preset struct {
	slot int32
	kind presetKind
	from place
}

type presetKind uint8

const (
	presetNothing presetKind = iota // not assigned yet
	presetCopy                      // the value of the same name further outside
)
