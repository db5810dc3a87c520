package openai

import "strconv"

// AppendError appends an error answer in OpenAI's form to dst:
//
//	{"error":{"message":"...","type":"...","param":null,"code":404}}
//
// param is the request's member at fault, null when empty. code is a word for programs; when empty it is the HTTP
// status, as engines do.
func AppendError(dst []byte, status int, typ, code, param, message string) []byte {
	dst = AppendString(append(dst, `{"error":{"message":`...), message)
	dst = AppendString(append(dst, `,"type":`...), typ)
	dst = append(dst, `,"param":`...)
	if param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = AppendString(dst, param)
	}
	dst = append(dst, `,"code":`...)
	if code == "" {
		dst = strconv.AppendInt(dst, int64(status), 10)
	} else {
		dst = AppendString(dst, code)
	}
	return append(dst, "}}"...)
}
