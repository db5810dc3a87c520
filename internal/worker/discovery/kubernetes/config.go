package kubernetes

import (
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"attache/internal/field"
	"attache/internal/worker"
)

// Config is what of a cluster are workers: exactly one of Service, Selector and InferencePool is given.
type Config struct {
	// Namespace is where they are. Empty: that of attache's own pod, or with kubeconfig that of its current context.
	Namespace string `yaml:"namespace"`
	// Service is a service whose endpoints are workers; a headless one will do. Its EndpointSlices are watched.
	Service string `yaml:"service"`
	// Selector chooses EndpointSlices by their labels, as kubectl --selector writes it, where they belong to several services or to
	// none.
	Selector string `yaml:"selector"`
	// InferencePool is a pool of the Gateway API inference extension (inference.networking.k8s.io/v1, or x-k8s.io's v1alpha2 where
	// the cluster has nothing newer): its selector chooses pods, and each of its target ports is a worker on every pod.
	InferencePool string `yaml:"inference_pool"`
	// Port is where engines serve, on every address. 0: as the EndpointSlices say, by port_name where they name several.
	Port int `yaml:"port"`
	// PortName chooses ports of the EndpointSlices by name. "rank-*" takes all whose names begin with "rank-": several ports of one
	// pod are one worker each, data-parallel ranks in the order of their numbers.
	PortName string `yaml:"port_name"`
	// PodLabels gives workers of EndpointSlices the labels of their pods. All pods of the namespace are watched for it, which attache
	// must be allowed to do; if it is not, workers come without them and the status says so. Workers of an InferencePool always
	// have them.
	PodLabels bool `yaml:"pod_labels"`
	// Kubeconfig is a file that says how to reach the cluster. Empty: attache is a pod of the cluster and uses its service account.
	Kubeconfig string `yaml:"kubeconfig"`
	// Engine is what these workers run, in place of the pool's: "vllm", "sglang", "trtllm" or "auto". Empty: as the pool says.
	Engine worker.Engine `yaml:"engine"`
	// Labels are given to each of these workers, as in a workers file. A label of a worker's own pod comes before them.
	Labels map[string]string `yaml:"labels"`
}

var (
	objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
	portName   = regexp.MustCompile(`^[a-z0-9-]{0,15}\*?$`)
)

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	const name = "must be the name of an object of Kubernetes: small letters, digits, \"-\" and \".\""
	check.Check(c.Namespace == "" || objectName.MatchString(c.Namespace), "namespace", c.Namespace, name)
	given := 0
	for _, text := range []string{c.Service, c.Selector, c.InferencePool} {
		if text != "" {
			given++
		}
	}
	check.Check(given == 1, "service", c.Service, "must be given, or selector or inference_pool, and only one of them")
	check.Check(c.Service == "" || objectName.MatchString(c.Service), "service", c.Service, name)
	_, err := labels.Parse(c.Selector)
	check.Check(err == nil, "selector", c.Selector, `must be a selector of labels such as "app=vllm,tier in (gpu, big)"`)
	check.Check(c.InferencePool == "" || objectName.MatchString(c.InferencePool), "inference_pool", c.InferencePool, name)
	check.Check(c.Port >= 0 && c.Port <= 65535, "port", c.Port, "must be a port, or 0")
	check.Check(c.Port == 0 || c.InferencePool == "", "port", c.Port, "must be left out where inference_pool is set: its targetPorts say it")
	check.Check(portName.MatchString(c.PortName), "port_name", c.PortName, `must be the name of a port, or the beginning of one followed by "*"`)
	check.Check(c.PortName == "" || c.Port == 0 && c.InferencePool == "", "port_name", c.PortName, "must be left out where port or inference_pool is set")
	check.Check(c.Engine == "" || c.Engine.Valid(), "engine", string(c.Engine), `must be "auto", "vllm", "sglang", "trtllm" or empty`)
	if _, err := worker.ParseTraits(c.Labels); err != nil {
		check.Check(false, "labels", nil, strings.TrimPrefix(err.Error(), "labels."))
	}
	return check.Err()
}

// What is the key that chooses, and its value.
func (c Config) What() (key, value string) {
	switch {
	case c.InferencePool != "":
		return "inference_pool", c.InferencePool
	case c.Selector != "":
		return "selector", c.Selector
	default:
		return "service", c.Service
	}
}

// Source says what is followed, for logs and figures: "models/service/vllm", "models/inference_pool/llama". Two parts of clusters that
// are followed for one pool must differ in it.
func (c Config) Source() string {
	key, value := c.What()
	name := key + "/" + value
	if c.Namespace != "" {
		name = c.Namespace + "/" + name
	}
	switch {
	case c.Port != 0:
		return name + ":" + strconv.Itoa(c.Port)
	case c.PortName != "":
		return name + ":" + c.PortName
	}
	return name
}
