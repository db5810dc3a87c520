# A static binary in an image without a shell, run by a user without rights. Build with `make image`.
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /attache ./cmd/attache

# gcr.io/distroless/static-debian12:nonroot
FROM gcr.io/distroless/static-debian12@sha256:d093aa3e30dbadd3efe1310db061a14da60299baff8450a17fe0ccc514a16639
COPY --from=build /attache /attache
USER 65532:65532
# ext_proc with access log and health, xDS, admin
EXPOSE 9002 18000 9902
ENTRYPOINT ["/attache"]
CMD ["serve"]
