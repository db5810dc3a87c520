package state

// Everything that attache keeps in Redis. PREFIX is Config.Prefix and 1 the version of all formats below; a change that older replicas would
// misread gets a new version, so that replicas of both run beside each other without seeing one another.
//
//	key                          type    holds                                      goes                            bound
//	PREFIX:v1:log:{STREAM}       stream  n number, v value                          stream_ttl after the last one   max_stream_length (and a node of 100) x max_record
//	PREFIX:v1:blob:{KEY}         string  the value                                  the caller's ttl, or never      max_value
//	PREFIX:v1:fence:{KEY}        string  the newest token that KEY was saved with   a day after the value           20 bytes
//	PREFIX:v1:ends:{GROUP}       zset    member: end of its lease, ms               with the last lease             max_members
//	PREFIX:v1:values:{GROUP}     hash    member: its value                          with the last lease             max_members x max_record
//	PREFIX:v1:leader:{NAME}      hash    owner, token, end in ms                    a day after the lease           300 bytes
//
// The braces are hash tags: what belongs together lies in one slot of a cluster, so that a script may touch it. No key is ever looked for by
// pattern. The commands that a user of the ACL needs, with the keys PREFIX:v1:* (those of scripts count):
//
//	+ping +time +eval +evalsha +multi +exec +select +cluster|slots
//	+xadd +xrevrange +xread +set +get +getrange +exists +unlink +pexpire +pexpireat
//	+zadd +zrem +zscore +zcard +zrange +zrangebyscore +hset +hget +hmget +hgetall +hdel
const version = ":v1:"

// forgottenAfter is how long, in milliseconds, tokens are remembered when what they fence has ended. Tokens that are given after that are
// larger still, because they are times.
const forgottenAfter = 24 * 60 * 60 * 1000

// keys spells the keys of one deployment.
type keys struct{ prefix string }

func (k keys) log(stream string) string   { return k.prefix + version + "log:{" + stream + "}" }
func (k keys) blob(key string) string     { return k.prefix + version + "blob:{" + key + "}" }
func (k keys) fence(key string) string    { return k.prefix + version + "fence:{" + key + "}" }
func (k keys) ends(group string) string   { return k.prefix + version + "ends:{" + group + "}" }
func (k keys) values(group string) string { return k.prefix + version + "values:{" + group + "}" }
func (k keys) leader(name string) string  { return k.prefix + version + "leader:{" + name + "}" }
