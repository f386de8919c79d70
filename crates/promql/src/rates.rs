//! Whether the value of a query is a load that arrives, and not a state that remains, such as the length of a queue.

use promql_parser::parser::{self, Expr};

use crate::query::Query;

impl Query {
    /// Whether the query is a sum of rates of counters, with constant factors, and possibly 0 instead of no value.
    /// Quotients of rates are no such sum: they are shares or means. False if in doubt.
    pub fn is_sum_of_rates(&self) -> bool {
        // The parser panics on some texts.
        let parsed = std::panic::catch_unwind(|| parser::parse(self.template()));
        parsed.is_ok_and(|parsed| parsed.is_ok_and(|expression| is_sum(&expression)))
    }
}

fn is_sum(expression: &Expr) -> bool {
    match expression {
        Expr::Paren(paren) => is_sum(&paren.expr),
        Expr::Aggregate(aggregate) => aggregate.op.to_string() == "sum" && is_sum(&aggregate.expr),
        Expr::Call(call) => {
            let is_rate = matches!(call.func.name, "rate" | "irate" | "increase");
            is_rate && call.args.args.iter().all(|argument| matches!(&**argument, Expr::MatrixSelector(_)))
        }
        Expr::Binary(binary) => {
            let (left, right) = (&*binary.lhs, &*binary.rhs);
            match binary.op.to_string().as_str() {
                "+" => is_sum(left) && is_sum(right),
                "*" => is_sum(left) && is_number(right) || is_number(left) && is_sum(right),
                "/" => is_sum(left) && is_number(right),
                "or" => is_sum(left) && (is_sum(right) || is_constant(right)),
                _ => false,
            }
        }
        _ => false,
    }
}

fn is_number(expression: &Expr) -> bool {
    match expression {
        Expr::Paren(paren) => is_number(&paren.expr),
        Expr::NumberLiteral(_) => true,
        _ => false,
    }
}

/// `vector(0)`, or another constant.
fn is_constant(expression: &Expr) -> bool {
    match expression {
        Expr::Paren(paren) => is_constant(&paren.expr),
        Expr::Call(call) => {
            call.func.name == "vector" && call.args.args.iter().all(|argument| is_number(argument))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_rates_are_told_from_other_queries() {
        for (query, expected) in [
            ("sum(rate(requests_total{job=\"web\"}[2m]))", true),
            ("sum by (service) (irate(requests_total[2m]))", true),
            ("(sum(increase(requests_total[5m])) / 5) or vector(0)", true),
            ("60 * sum(rate(a_total[1m])) + sum(rate(b_total[1m]) or rate(c_total[1m]))", true),
            ("sum(rate(requests_total[2m] offset 1m))", true),
            // A queue, a mean, a quantile, a rate of pods, and a difference.
            ("sum(queue_length)", false),
            ("sum(rate(seconds_sum[2m])) / sum(rate(seconds_count[2m]))", false),
            ("histogram_quantile(0.9, sum by (le) (rate(seconds_bucket[2m])))", false),
            ("avg(rate(requests_total[2m]))", false),
            ("sum(rate(in_total[2m])) - sum(rate(out_total[2m]))", false),
            ("sum(rate(requests_total[2m])) + sum(queue_length)", false),
            ("sum(max_over_time(rate(requests_total[1m])[5m:]))", false),
            ("sum(rate(requests_total[2m])) or sum(queue_length)", false),
            ("job:requests:rate5m", false),
        ] {
            let found = Query::parse(query, None).unwrap().is_sum_of_rates();
            assert_eq!(found, expected, "{query}");
        }
    }
}
