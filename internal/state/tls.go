package state

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"

	"attache/internal/field"
)

// validate reports every field that breaks its rule.
func (t TLS) validate() error {
	var check field.Checker
	for _, f := range []struct{ path, value string }{
		{"ca_file", t.CAFile}, {"cert_file", t.CertFile}, {"key_file", t.KeyFile}, {"server_name", t.ServerName},
	} {
		check.Check(t.Enabled || f.value == "", f.path, f.value, "must be empty while tls.enabled is false")
	}
	if t.CAFile != "" {
		_, err := t.authorities()
		check.Check(err == nil, "ca_file", t.CAFile, "must be a PEM file with certificates")
	}
	check.Check((t.CertFile == "") == (t.KeyFile == ""), "key_file", t.KeyFile, "must be given together with cert_file")
	if t.CertFile != "" && t.KeyFile != "" {
		_, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		check.Check(err == nil, "cert_file", t.CertFile, "must be a PEM file with the certificate of key_file")
	}
	return check.Err()
}

// config is the settings for connections, nil without TLS.
func (t TLS) config() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	var err error
	if cfg.RootCAs, err = t.authorities(); err != nil {
		return nil, err
	}
	if t.CertFile != "" {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			return &pair, err
		}
	}
	return cfg, nil
}

// authorities are those of CAFile, nil for the system's.
func (t TLS) authorities() (*x509.CertPool, error) {
	if t.CAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in " + t.CAFile)
	}
	return pool, nil
}
