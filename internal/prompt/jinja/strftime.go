package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftime formats a time as C does in the locale C. What it does not know stays as it is.
func strftime(layout string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(layout); i++ {
		c := layout[i]
		if c != '%' || i+1 == len(layout) {
			b.WriteByte(c)
			continue
		}
		i++
		flag := byte(0)
		if strings.IndexByte("-_0^#", layout[i]) >= 0 && i+1 < len(layout) {
			flag = layout[i]
			i++
		}
		s, ok := timeField(layout[i], t)
		if !ok {
			s = layout[i-1-boolLen(flag) : i+1]
		}
		b.WriteString(flagged(s, flag))
	}
	return b.String()
}

func boolLen(flag byte) int {
	if flag != 0 {
		return 1
	}
	return 0
}

// flagged applies a flag of the GNU library: no padding, blanks for zeros, or upper case.
func flagged(s string, flag byte) string {
	digits := strings.TrimLeft(s, "0 ")
	switch {
	case flag == '^' || flag == '#':
		return strings.ToUpper(s)
	case flag != '-' && flag != '_' || s == "" || !isDecimal(s[len(s)-1]):
		return s
	case digits == "":
		digits = "0"
	}
	if flag == '-' {
		return digits
	}
	return strings.Repeat(" ", len(s)-len(digits)) + digits
}

func timeField(c byte, t time.Time) (string, bool) {
	switch c {
	case 'a':
		return t.Format("Mon"), true
	case 'A':
		return t.Format("Monday"), true
	case 'b', 'h':
		return t.Format("Jan"), true
	case 'B':
		return t.Format("January"), true
	case 'c':
		return t.Format("Mon Jan _2 15:04:05 2006"), true
	case 'C':
		return two(t.Year() / 100), true
	case 'd':
		return t.Format("02"), true
	case 'D', 'x':
		return t.Format("01/02/06"), true
	case 'e':
		return t.Format("_2"), true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'F':
		return t.Format("2006-01-02"), true
	case 'g', 'G', 'V':
		return weekOfYear(c, t), true
	case 'H':
		return t.Format("15"), true
	case 'I':
		return t.Format("03"), true
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay()), true
	case 'k':
		return fmt.Sprintf("%2d", t.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", (t.Hour()+11)%12+1), true
	case 'm':
		return t.Format("01"), true
	case 'M':
		return t.Format("04"), true
	}
	return moreTimeFields(c, t)
}

func moreTimeFields(c byte, t time.Time) (string, bool) {
	switch c {
	case 'n':
		return "\n", true
	case 'p':
		return t.Format("PM"), true
	case 'P':
		return t.Format("pm"), true
	case 'r':
		return t.Format("03:04:05 PM"), true
	case 'R':
		return t.Format("15:04"), true
	case 's':
		return strconv.FormatInt(t.Unix(), 10), true
	case 'S':
		return t.Format("05"), true
	case 't':
		return "\t", true
	case 'T', 'X':
		return t.Format("15:04:05"), true
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1), true
	case 'U':
		return two((t.YearDay() + 6 - int(t.Weekday())) / 7), true
	case 'w':
		return strconv.Itoa(int(t.Weekday())), true
	case 'W':
		return two((t.YearDay() + 6 - (int(t.Weekday())+6)%7) / 7), true
	case 'y':
		return t.Format("06"), true
	case 'Y':
		return strconv.Itoa(t.Year()), true
	case 'z', 'Z':
		return "", true // Python's time of day, as strftime_now takes it, knows no zone
	case '%':
		return "%", true
	}
	return "", false
}

func two(n int) string { return fmt.Sprintf("%02d", n) }

func weekOfYear(c byte, t time.Time) string {
	year, week := t.ISOWeek()
	switch c {
	case 'g':
		return two(year % 100)
	case 'G':
		return strconv.Itoa(year)
	default:
		return two(week)
	}
}
