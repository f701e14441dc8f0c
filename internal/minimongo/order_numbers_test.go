package minimongo

import (
	"math"
	"math/big"
)

func bigInt(n int64) *big.Int { return big.NewInt(n) }

// exact gives the number as a fraction, or its rank among NaN (-2), -Infinity (-1) and Infinity (1).
func exact(v value) (r *big.Rat, rank int) {
	switch v.Type {
	case tDouble:
		f := f64(v)
		switch {
		case math.IsNaN(f):
			return nil, -2
		case math.IsInf(f, 0):
			return nil, sign(int(math.Copysign(1, f)))
		}
		return new(big.Rat).SetFloat64(f), 0
	case tDecimal:
		d := decimal(v)
		if d.IsNaN() {
			return nil, -2
		}
		if d.IsInf() != 0 {
			return nil, d.IsInf()
		}
		r, _ := new(big.Rat).SetString(d.String())
		return r, 0
	}
	return new(big.Rat).SetInt64(v.AsInt64()), 0
}

func referenceNumbers(a, b value) int {
	x, rx := exact(a)
	y, ry := exact(b)
	if rx != 0 || ry != 0 {
		return sign(rx - ry)
	}
	return x.Cmp(y)
}
