package wire

import (
	"encoding/binary"
	"strconv"
)

// EndOfReplay is the sequence number of the message that ends a replay: -1 as the engines count.
const EndOfReplay = ^uint64(0)

// Message is a live message, or one of a replay. It shares memory with the frames.
type Message struct {
	// Topic is the engine's; by convention of llm-d "kv@<pod>@<model>". Empty where it was not sent.
	Topic []byte
	// Seq numbers the batches of one publisher process, from 0 without gaps. It starts anew when the engine does.
	Seq uint64
	// Payload is for Batch.Decode.
	Payload []byte
}

// ParseLive takes the frames of a message from a PUB socket: topic, sequence number, payload. The error is a *FrameError.
func ParseLive(frames [][]byte) (Message, error) {
	if len(frames) != 3 {
		return Message{}, &FrameError{Want: "a live message has 3 frames (topic, sequence, payload)", Got: count(len(frames), "frame")}
	}
	return parse(frames)
}

// ParseReplay takes the frames of one message from a replay socket, as a DEALER gets them or as a REQ does. end says that the
// replay is over: the message has no payload, and its sequence number, as a rule EndOfReplay, means nothing. The error is a
// *FrameError.
//
// A leading empty frame is the delimiter. Behind it vLLM since 2026-07-07 (#45177) and SGLang since 0.5.22 send topic,
// sequence number and payload, older ones no topic; that of the end is empty. So the last two frames are what counts.
func ParseReplay(frames [][]byte) (m Message, end bool, err error) {
	if len(frames) > 2 && len(frames[0]) == 0 {
		frames = frames[1:]
	}
	if len(frames) != 2 && len(frames) != 3 {
		return Message{}, false, &FrameError{
			Want: "a message of a replay has 2 or 3 frames (topic if any, sequence, payload) behind the empty one",
			Got:  count(len(frames), "frame"),
		}
	}
	if m, err = parse(frames); err != nil {
		return Message{}, false, err
	}
	if len(m.Payload) > 0 && m.Seq == EndOfReplay {
		return Message{}, false, &FrameError{Want: "the end of a replay has no payload", Got: count(len(m.Payload), "byte")}
	}
	return m, len(m.Payload) == 0, nil
}

// parse reads the last two frames, and the topic before them.
func parse(frames [][]byte) (m Message, err error) {
	if len(frames) > 2 {
		m.Topic = frames[0]
	}
	seq := frames[len(frames)-2]
	if len(seq) != 8 {
		return Message{}, &FrameError{Want: "a sequence number has 8 bytes", Got: count(len(seq), "byte")}
	}
	m.Seq, m.Payload = binary.BigEndian.Uint64(seq), frames[len(frames)-1]
	return m, nil
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// LiveFrames are the frames that a PUB socket sends.
func LiveFrames(m Message) [][]byte { return [][]byte{m.Topic, seqFrame(m.Seq), m.Payload} }

// ReplayRequest is what a DEALER sends to be told every buffered batch from start on: an empty delimiter, without which the
// engines never answer, and the sequence number. Engines that no longer have start begin, silently, at the oldest they have.
func ReplayRequest(start uint64) [][]byte { return [][]byte{{}, seqFrame(start)} }

// ParseReplayRequest is the sequence number that a replay is asked to start at, for simulated engines: frames are what a
// ROUTER gets, without the identity. The error is a *FrameError; engines log it and do not answer.
func ParseReplayRequest(frames [][]byte) (start uint64, err error) {
	switch {
	case len(frames) != 2:
		return 0, &FrameError{Want: "a request for a replay has 2 frames (delimiter, sequence)", Got: count(len(frames), "frame")}
	case len(frames[1]) != 8:
		return 0, &FrameError{Want: "a sequence number has 8 bytes", Got: count(len(frames[1]), "byte")}
	}
	return binary.BigEndian.Uint64(frames[1]), nil
}

// ReplayFrames are the frames of one message of a replay, as a DEALER gets them. withTopic chooses between the two framings;
// see ParseReplay.
func ReplayFrames(m Message, withTopic bool) [][]byte {
	if withTopic {
		return [][]byte{{}, m.Topic, seqFrame(m.Seq), m.Payload}
	}
	return [][]byte{{}, seqFrame(m.Seq), m.Payload}
}

// ReplayEnd are the frames that end a replay, as a DEALER gets them.
func ReplayEnd(withTopic bool) [][]byte {
	return ReplayFrames(Message{Topic: []byte{}, Seq: EndOfReplay, Payload: []byte{}}, withTopic)
}

func seqFrame(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
