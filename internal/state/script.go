package state

import (
	"embed"
	"path"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var lua embed.FS

// script is what Redis does as a whole.
type script struct {
	known *redis.Script
	text  string
}

// scripts are all of them. They are called by their hash, and given to a server that does not know them, or has forgotten them.
type scripts struct {
	append, put, remove, members, acquire, release, saveFenced *script
}

func loadScripts() (s scripts, err error) {
	common, err := lua.ReadFile("lua/common.lua")
	if err != nil {
		return s, err
	}
	for _, f := range []struct {
		to   **script
		name string
	}{
		{&s.append, "append"}, {&s.put, "lease_put"}, {&s.remove, "lease_remove"}, {&s.members, "lease_members"},
		{&s.acquire, "leader_acquire"}, {&s.release, "leader_release"}, {&s.saveFenced, "save_fenced"},
	} {
		text, err := lua.ReadFile(path.Join("lua", f.name+".lua"))
		if err != nil {
			return s, err
		}
		whole := string(common) + string(text)
		*f.to = &script{known: redis.NewScript(whole), text: whole}
	}
	return s, nil
}
