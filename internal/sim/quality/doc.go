// Package quality says how well policies route: scenarios on simulated clusters, policies side by side, and what was aimed at.
//
// In the common case a Suite runs its Plan, each policy on each scenario with each seed, by the production scoring and index in
// virtual time; Results then compares the rows and checks the suite's targets, and Text, Markdown and HTML print that. For a
// seed everything but wall time is the same on every machine.
//
//	spec.go        policies as people write them     scenario.go  workloads and clusters
//	run.go         the simulations                   reference.go the bound of a shared cache
//	suite.go       suites, one file each behind it   target.go    what is aimed at
//	results.go     means, ratios, regret             text.go, markdown.go, html.go, chart.go  what is printed
package quality
