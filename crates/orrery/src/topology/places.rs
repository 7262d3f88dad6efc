//! Where well-known regions lie, as far as ordering them by distance needs it.

/// A region: name, the geography an account in it is named after, latitude and longitude in degrees.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub name: &'static str,
    pub geography: &'static str,
    pub latitude: f64,
    pub longitude: f64,
}

const fn place(name: &'static str, geography: &'static str, latitude: f64, longitude: f64) -> Place {
    Place {
        name,
        geography,
        latitude,
        longitude,
    }
}

/// In the order in which `--regions N` takes them: the first ones far apart.
pub const PLACES: [Place; 24] = [
    place("West US", "usa", 37.8, -122.4),
    place("North Europe", "europe", 53.3, -6.3),
    place("Southeast Asia", "asia", 1.3, 103.8),
    place("Brazil South", "brazil", -23.6, -46.6),
    place("Australia East", "australia", -33.9, 151.2),
    place("South Africa North", "africa", -25.7, 28.2),
    place("Central India", "india", 18.6, 73.9),
    place("Japan East", "japan", 35.7, 139.8),
    place("UAE North", "uae", 25.3, 55.3),
    place("East US", "usa", 37.4, -79.8),
    place("West Europe", "europe", 52.4, 4.9),
    place("East Asia", "asia", 22.3, 114.2),
    place("Central US", "usa", 41.6, -93.6),
    place("UK South", "uk", 51.5, -0.1),
    place("Canada Central", "canada", 43.7, -79.4),
    place("Korea Central", "korea", 37.6, 127.0),
    place("Sweden Central", "sweden", 60.7, 17.1),
    place("Germany West Central", "germany", 50.1, 8.7),
    place("France Central", "france", 46.4, 2.4),
    place("Switzerland North", "switzerland", 47.5, 8.6),
    place("South India", "india", 13.0, 80.2),
    place("West US 2", "usa", 47.2, -119.9),
    place("East US 2", "usa", 36.7, -78.4),
    place("Australia Southeast", "australia", -37.8, 145.0),
];

/// A region by name, in any spelling.
pub fn find(name: &str) -> Option<&'static Place> {
    PLACES.iter().find(|place| plain(place.name) == plain(name))
}

/// What is left of a name when case, blanks and dashes do not count.
pub fn plain(name: &str) -> String {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// Along the surface of the earth.
pub fn distance_km(from: &Place, to: &Place) -> f64 {
    const EARTH_RADIUS_KM: f64 = 6371.0;
    let half_chord = |a: f64, b: f64| ((b - a).to_radians() / 2.0).sin().powi(2);
    let across = half_chord(from.latitude, to.latitude);
    let along = half_chord(from.longitude, to.longitude);
    let cosines = from.latitude.to_radians().cos() * to.latitude.to_radians().cos();
    2.0 * EARTH_RADIUS_KM * (across + cosines * along).sqrt().asin()
}

/// About how long something takes from one region to another, in milliseconds: light in glass covers 200 km in one, and
/// cables are longer than the shortest way.
pub fn latency_ms(from: &Place, to: &Place) -> u32 {
    const DETOUR: f64 = 1.6;
    (distance_km(from, to) / 200.0 * DETOUR).round() as u32
}
