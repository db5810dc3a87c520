package queue

// Refuses is the limit for which Push would not let a request wait, if nobody gave way to it; nil: it would. It changes nothing.
func (q *Queue[T]) Refuses(r Request) *Rejection {
	c := q.classes[r.Class]
	no := q.refuse(c, &r)
	if no != nil {
		no.Class = c.cfg.Name
		if no.RetryAfter = c.rate.retryAfter(c.used.requests); no.Total {
			no.RetryAfter = q.rate.retryAfter(q.used.requests)
		}
	}
	return no
}
