package extproc

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// load reads the certificate files. The certificate is read again at every handshake, so that a renewed one is used
// without a restart.
func (t *TLS) load() (*tls.Config, error) {
	if _, err := tls.LoadX509KeyPair(t.Cert, t.Key); err != nil {
		return nil, fmt.Errorf("cert and key: %w", err)
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			return &pair, err
		},
	}
	if t.ClientCA == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(t.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("client_ca: %w", err)
	}
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("client_ca: %s holds no PEM certificate", t.ClientCA)
	}
	return cfg, nil
}
