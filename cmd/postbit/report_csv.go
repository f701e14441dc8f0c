package main

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"unicode"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/report"
)

// reportColumn is a column of the CSV and the metric that it shows.
type reportColumn struct{ name, metric string }

// reportColumns are stable: columns may come behind the last one, and none goes or moves.
func reportColumns() []reportColumn {
	columns := []reportColumn{{"sent", "sent"}, {"failed", "failed"}, {"unconfirmed", "unconfirmed"}, {"bounced", "bounced"}}
	for _, reason := range campaign.SkipReasons {
		columns = append(columns, reportColumn{"skipped_" + reason, analytics.Skipped + reason})
	}
	columns = append(columns, reportColumn{"hits", analytics.Hits})
	for _, kind := range []string{"human", "proxy", "prefetch", "machine"} {
		columns = append(columns, reportColumn{kind, analytics.OpenedKind + kind})
	}
	return append(columns, reportColumn{"opened", analytics.Opened}, reportColumn{"opened_unique", analytics.OpenedUnique},
		reportColumn{"clicked", analytics.Clicked}, reportColumn{"unsubscribed", analytics.Unsubscribed}, reportColumn{"complained", analytics.Complained})
}

// writeReportCSV writes a row for every day of the range, by RFC 4180.
func writeReportCSV(w io.Writer, r *report.Report) error {
	columns := reportColumns()
	header := []string{"day", "campaign"}
	for _, c := range columns {
		header = append(header, c.name)
	}
	rows := [][]string{header}
	for _, d := range r.EveryDay() {
		row := []string{d.Day, cell(r.Campaign)}
		for _, c := range columns {
			row = append(row, strconv.FormatInt(d.Metrics[c.metric], 10))
		}
		rows = append(rows, row)
	}
	return writeCSV(w, rows)
}

// writeListCSV writes a row for every line of a top list.
func writeListCSV(w io.Writer, l *report.List) error {
	rows := [][]string{{"campaign", "list", "from_month", "to_month", "value", "title", "n"}}
	for _, v := range l.Values {
		rows = append(rows, []string{cell(l.Campaign), l.List, l.Months[0], l.Months[len(l.Months)-1], cell(v.Value), cell(v.Title), strconv.FormatInt(v.N, 10)})
	}
	return writeCSV(w, rows)
}

func writeCSV(w io.Writer, rows [][]string) error {
	out := csv.NewWriter(w)
	out.UseCRLF = true // RFC 4180, section 2.1
	return out.WriteAll(rows)
}

// cell makes a text from outside safe in a spreadsheet, which would run one that begins like a formula: an apostrophe makes it
// a text. Control characters go, as on a terminal: they are also what hides a formula behind a tab.
func cell(s string) string {
	s = visible(s)
	nothing := func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("\u200c\u200d\ufffd", r) }
	if first := strings.TrimLeftFunc(s, nothing); first != "" && strings.ContainsAny(first[:1], "=+-@") || strings.IndexAny(first, "＝＋－＠") == 0 {
		return "'" + s
	}
	return s
}
