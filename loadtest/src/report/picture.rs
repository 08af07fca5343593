//! A picture of the run: the allowed and limited requests in each second, the limit, and the announced waits.
//!
//! Light and dark bars, dots and crosses: the picture is readable in grey.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::Report;

const WIDTH: i32 = 1_000;
const HEIGHT: i32 = 420;
const LEFT: i32 = 64;
const RIGHT: i32 = 980;
const TOP: i32 = 66;
const BASE: i32 = 330;
/// The height of the marks of kept and broken waits.
const MARKS: i32 = 378;

const ALLOWED: RGBColor = RGBColor(0x1f, 0x5f, 0x46);
const LIMITED: RGBColor = RGBColor(0xf0, 0xc4, 0xb0);
const FAILED: RGBColor = RGBColor(0x9a, 0x9a, 0x9a);
const GRID: RGBColor = RGBColor(0xd8, 0xdb, 0xe0);
const INK: RGBColor = RGBColor(0x22, 0x26, 0x2c);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

/// Converts seconds and counts into positions.
struct Scale {
    seconds: i64,
    most: i64,
}

impl Report<'_> {
    /// Draws the run into a file.
    ///
    /// # Errors
    ///
    /// The error of the system if the file cannot be written.
    pub fn draw(&self, path: &Path) -> Drawn {
        let size = (u32::try_from(WIDTH)?, u32::try_from(HEIGHT)?);
        let area = SVGBackend::new(path, size).into_drawing_area();
        area.fill(&WHITE)?;
        let seconds = &self.outcome.tally.seconds;
        let most = seconds
            .iter()
            .map(|second| second.iter().sum::<u64>())
            .max();
        let scale = Scale {
            seconds: i64::try_from(seconds.len())?.max(1),
            most: i64::try_from(most.unwrap_or(0))?.max(1),
        };
        self.draw_legend(&area)?;
        draw_grid(&area, &scale)?;
        self.draw_bars(&area, &scale)?;
        self.draw_limit(&area, &scale)?;
        self.draw_promises(&area, &scale)?;
        area.present()?;
        Ok(())
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn {
        let mut x = LEFT;
        for (name, color) in [
            ("allowed", ALLOWED),
            ("limited", LIMITED),
            ("errors", FAILED),
        ] {
            let square = [(x, 16), (x + 14, 30)];
            area.draw(&Rectangle::new(square, color.filled()))?;
            area.draw(&Rectangle::new(square, INK.stroke_width(1)))?;
            text(area, name, (x + 20, 16))?;
            x += 100;
        }
        text(area, "requests in each second", (x, 16))?;
        if self.options.check {
            text(area, "waits that were promised:", (x + 220, 16))?;
            dot(area, (x + 400, 23))?;
            text(area, "kept", (x + 412, 16))?;
            cross(area, (x + 460, 23))?;
            text(area, "broken", (x + 472, 16))?;
        }
        Ok(())
    }

    fn draw_bars(&self, area: &Area<'_>, scale: &Scale) -> Drawn {
        for (second, counts) in (0_i64..).zip(&self.outcome.tally.seconds) {
            let (left, right) = (scale.x(second)? + 1, scale.x(second + 1)? - 1);
            let mut sum = 0;
            for (count, color) in counts.iter().zip([ALLOWED, LIMITED, FAILED]) {
                let below = scale.y(sum)?;
                sum += i64::try_from(*count)?;
                let bar = [(left, scale.y(sum)?), (right.max(left + 1), below)];
                if *count > 0 {
                    area.draw(&Rectangle::new(bar, color.filled()))?;
                    area.draw(&Rectangle::new(bar, INK.stroke_width(1)))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the requests per second that the policy allows all clients together in the long run.
    fn draw_limit(&self, area: &Area<'_>, scale: &Scale) -> Drawn {
        let Some(policy) = self.options.policy else {
            return Ok(());
        };
        let (Some(limit), Some(period)) = (policy.limit(), policy.period()) else {
            return Ok(());
        };
        let limit = f64::from(limit) * f64::from(self.options.clients) / period.as_secs_f64();
        let share = limit / scale.float();
        if share > 1.0 {
            return Ok(());
        }
        let y = BASE - pixels(f64::from(BASE - TOP) * share);
        // White below the line, for dark bars.
        area.draw(&PathElement::new(
            [(LEFT, y), (RIGHT, y)],
            WHITE.stroke_width(4),
        ))?;
        for x in (LEFT..RIGHT).step_by(14) {
            dash(area, x, (x + 9).min(RIGHT), y)?;
        }
        dash(area, LEFT, LEFT + 14, 43)?;
        text(area, &format!("{policy}, per second"), (LEFT + 20, 36))
    }

    fn draw_promises(&self, area: &Area<'_>, scale: &Scale) -> Drawn {
        if !self.options.check {
            return Ok(());
        }
        for (second, [kept, broken]) in &self.outcome.judgement.promises {
            let second = i64::try_from(*second)?;
            if second >= scale.seconds {
                continue;
            }
            let x = i32::midpoint(scale.x(second)?, scale.x(second + 1)?);
            if *kept > 0 {
                dot(area, (x, MARKS - 8))?;
            }
            if *broken > 0 {
                cross(area, (x, MARKS + 10))?;
            }
        }
        text(area, "waits", (14, MARKS - 6))
    }
}

impl Scale {
    fn x(&self, second: i64) -> Result<i32, std::num::TryFromIntError> {
        let width = i64::from(RIGHT - LEFT);
        i32::try_from(i64::from(LEFT) + width * second / self.seconds)
    }

    fn y(&self, count: i64) -> Result<i32, std::num::TryFromIntError> {
        let height = i64::from(BASE - TOP);
        i32::try_from(i64::from(BASE) - height * count / self.most)
    }

    #[allow(clippy::cast_precision_loss, reason = "a count of pixels at most")]
    fn float(&self) -> f64 {
        self.most as f64
    }
}

fn draw_grid(area: &Area<'_>, scale: &Scale) -> Drawn {
    for part in 0..=4 {
        let count = scale.most * part / 4;
        let y = scale.y(count)?;
        area.draw(&PathElement::new([(LEFT, y), (RIGHT, y)], GRID))?;
        text(area, &count.to_string(), (14, y - 7))?;
    }
    let step = (scale.seconds / 10).max(1);
    for second in (0..=scale.seconds).step_by(usize::try_from(step)?) {
        text(
            area,
            &format!("{second} s"),
            (scale.x(second)? - 8, BASE + 8),
        )?;
    }
    Ok(())
}

fn text(area: &Area<'_>, text: &str, place: (i32, i32)) -> Drawn {
    let style = ("sans-serif", 14).into_font().color(&INK);
    area.draw(&Text::new(text.to_owned(), place, style))?;
    Ok(())
}

fn dash(area: &Area<'_>, left: i32, right: i32, y: i32) -> Drawn {
    area.draw(&PathElement::new(
        [(left, y), (right, y)],
        INK.stroke_width(2),
    ))?;
    Ok(())
}

fn dot(area: &Area<'_>, place: (i32, i32)) -> Drawn {
    area.draw(&Circle::new(place, 5, INK.filled()))?;
    Ok(())
}

fn cross(area: &Area<'_>, place: (i32, i32)) -> Drawn {
    area.draw(&Cross::new(place, 5, INK.stroke_width(2)))?;
    Ok(())
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a share of the height of the picture"
)]
fn pixels(height: f64) -> i32 {
    height.round() as i32
}
