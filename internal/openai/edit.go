package openai

import "slices"

// Edit is what Apply changes in a request body.
type Edit struct {
	// Model replaces the model's name, or adds it where the body has none; nil leaves it alone.
	Model *string
	// IncludeUsage makes the streamed answer of a chat or a completion end with its usage. It changes nothing in requests
	// that do not stream, nor in those of other APIs, which do not know the option.
	IncludeUsage bool
}

// edits are the places in a body where edits go. Where a key is repeated it is the last one, since it wins.
type edits struct {
	top     object
	model   Span // the value with its quotes, also a null; empty when there is none
	options options
}

// object is where members can be added to an object: right after its bracket, where no comma is needed in front.
type object struct {
	inside int
	empty  bool
}

// options is the value of stream_options.
type options struct {
	value    Span // empty when absent
	isObject bool
	object   object
	usage    usageState
	usageAt  Span // the value of include_usage; empty when absent
}

type usageState uint8

const (
	usageOff usageState = iota
	usageOn
)

func (o *options) scan(s *scanner) {
	*o = options{isObject: s.peek() == '{'}
	from := s.i
	if !o.isObject {
		o.value = s.skip()
		return
	}
	s.open('{')
	o.object = object{inside: s.i, empty: true}
	for key, more := s.member(true); more; key, more = s.member(false) {
		o.object.empty = false
		if string(key) != "include_usage" {
			s.skip()
			continue
		}
		o.usage = usageOff
		if o.usageAt = s.skip(); string(o.usageAt.In(s.b)) == literalTrue {
			o.usage = usageOn
		}
	}
	o.value = Span{from, s.i}
}

// splice replaces a range of the body by a value, or inserts a member.
type splice struct {
	at     Span   // empty for a member
	key    string // of the member; "" for a value
	value  string
	quote  bool // value is text that is yet to be written as a JSON string
	others bool // members follow the new one
}

// Apply appends body to dst with the edits made; every byte that they do not concern stays as it is. body must be what
// was scanned into r. It allocates only to grow dst.
func (r *Request) Apply(dst, body []byte, e Edit) []byte {
	var list [2]splice
	todo := list[:0]
	if e.Model != nil {
		todo = append(todo, r.modelSplice(*e.Model))
	}
	if e.IncludeUsage && r.Stream && !r.IncludeUsage && (r.Kind == Chat || r.Kind == Completions) {
		if s, ok := r.usageSplice(body); ok {
			todo = append(todo, s)
		}
	}
	slices.SortStableFunc(todo, func(a, b splice) int { return a.at.From - b.at.From })
	at := 0
	for _, s := range todo {
		dst = append(dst, body[at:s.at.From]...)
		dst = s.append(dst)
		at = s.at.To
	}
	return append(dst, body[at:]...)
}

func (s *splice) append(dst []byte) []byte {
	if s.key != "" {
		dst = append(AppendString(dst, s.key), ':')
	}
	if s.quote {
		dst = AppendString(dst, s.value)
	} else {
		dst = append(dst, s.value...)
	}
	if s.others {
		dst = append(dst, ',')
	}
	return dst
}

// insert is a splice that adds a member to an object.
func (o object) insert(key, value string) splice {
	return splice{at: Span{o.inside, o.inside}, key: key, value: value, others: !o.empty}
}

func (r *Request) modelSplice(name string) splice {
	s := splice{at: r.edits.model, value: name}
	if r.edits.model.Empty() {
		s = r.edits.top.insert("model", name)
	}
	s.quote = true
	return s
}

// usageSplice finds how to set stream_options.include_usage; ok is false when the options are of a type that no engine
// takes: its refusal is the better answer.
func (r *Request) usageSplice(body []byte) (s splice, ok bool) {
	switch o := &r.edits.options; {
	case o.value.Empty():
		return r.edits.top.insert("stream_options", `{"include_usage":true}`), true
	case string(o.value.In(body)) == "null":
		return splice{at: o.value, value: `{"include_usage":true}`}, true
	case !o.isObject:
		return splice{}, false
	case o.usageAt.Empty():
		return o.object.insert("include_usage", literalTrue), true
	default:
		return splice{at: o.usageAt, value: literalTrue}, true
	}
}

// AppendWithModel appends body to dst with the model's name replaced or added.
func AppendWithModel(dst, body []byte, r *Request, model string) []byte {
	return r.Apply(dst, body, Edit{Model: &model})
}

// AppendWithUsage appends body to dst, changed so that a streamed answer ends with its usage.
func AppendWithUsage(dst, body []byte, r *Request) []byte {
	return r.Apply(dst, body, Edit{IncludeUsage: true})
}
