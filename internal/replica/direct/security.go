package direct

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Bounds of a token, in bytes. A short one could be guessed by whoever has seen a handshake.
const (
	leastToken = 16
	mostToken  = 4096
)

// readToken reads the shared secret. Errors never show what the file holds.
func readToken(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("token_file: must be a file that can be read: %w", err)
	}
	if text = bytes.TrimSpace(text); len(text) < leastToken || len(text) > mostToken {
		return nil, fmt.Errorf("token_file: must hold %d to %d bytes", leastToken, mostToken)
	}
	return text, nil
}

// load reads the certificate files.
func (t *TLS) load() (tls.Certificate, *x509.CertPool, error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return pair, nil, fmt.Errorf("cert and key: %w", err)
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return pair, nil, fmt.Errorf("ca: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return pair, nil, fmt.Errorf("ca: %s holds no PEM certificate", t.CA)
	}
	return pair, authorities, nil
}

// server are the credentials of a listener: the files are read at every handshake.
func (t *TLS) server() credentials.TransportCredentials {
	if t == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, authorities, err := t.load()
		if err != nil {
			return nil, err
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair},
			ClientCAs: authorities, ClientAuth: tls.RequireAndVerifyClientCert,
		}, nil
	}})
}

// client are the credentials of one connection to a host.
func (t *TLS) client(host string) (credentials.TransportCredentials, error) {
	if t == nil {
		return insecure.NewCredentials(), nil
	}
	pair, authorities, err := t.load()
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	if t.ServerName != "" {
		host = t.ServerName
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: authorities, ServerName: host}), nil
}

var errToken = errors.New("the other replica has another token")
