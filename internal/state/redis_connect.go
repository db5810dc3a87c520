package state

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"attache/internal/field"
)

// connector returns what makes clients. A client connects when it is first used, as often as it is used, and again when its connections
// break.
func connector(cfg Config) (func() redis.UniversalClient, error) {
	encrypted, err := cfg.TLS.config()
	if err != nil {
		return nil, fmt.Errorf("redis.tls: %w", err)
	}
	sentinelPassword, err := readPassword(cfg.SentinelPasswordFile)
	if err != nil {
		return nil, fmt.Errorf("redis.sentinel_password_file: %w", err)
	}
	// What the library would write to standard error comes as an error of the call that it concerns, too.
	redis.SetLogger(silent{})
	options := redis.UniversalOptions{
		Addrs:            cfg.Addresses,
		MasterName:       cfg.MasterName,
		SentinelUsername: cfg.SentinelUsername,
		SentinelPassword: sentinelPassword,
		DB:               cfg.Database,
		Protocol:         2,
		DisableIdentity:  true,
		TLSConfig:        encrypted,

		DialTimeout:   cfg.DialTimeout,
		DialerRetries: 1, // the next call tries again
		// Contexts end calls. These bounds are for what the library does on its own, such as asking for the nodes of a cluster.
		ContextTimeoutEnabled: true,
		ReadTimeout:           longestCommand,
		WriteTimeout:          longestCommand,
		PoolTimeout:           longestCommand,

		MaxRetries:       1,
		MinRetryBackoff:  5 * time.Millisecond,
		MaxRetryBackoff:  50 * time.Millisecond,
		PoolSize:         cfg.PoolSize,
		MaxActiveConns:   cfg.PoolSize,
		PipelinePoolSize: -1,

		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if cfg.PasswordFile != "" {
		options.CredentialsProviderContext = func(context.Context) (string, string, error) {
			password, err := readPassword(cfg.PasswordFile)
			if err != nil {
				return "", "", fmt.Errorf("redis.password_file: %w", err)
			}
			return cfg.Username, password, nil
		}
	}
	switch cfg.mode() {
	case ModeSentinel:
		return func() redis.UniversalClient { return redis.NewFailoverClient(options.Failover()) }, nil
	case ModeCluster:
		return func() redis.UniversalClient {
			cluster := options.Cluster()
			cluster.DisableRoutingPolicies = true // every command here has its keys in one slot
			return redis.NewClusterClient(cluster)
		}, nil
	default:
		return func() redis.UniversalClient {
			simple := options.Simple()
			simple.Network, simple.Addr = field.Network(cfg.Addresses[0])
			return redis.NewClient(simple)
		}, nil
	}
}

// silent drops the lines of the library.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
