//! English words too common to search for: function words and their contractions' halves.

use std::collections::HashSet;
use std::sync::LazyLock;

const STOP_WORDS: &str = "
    a about above across after afterwards again against all almost alone along already also although always am among
    amongst an and another any anybody anyhow anyone anything anyway anywhere apart are aren around as aside at away
    be became because become becomes becoming been before beforehand behind being below beside besides between
    beyond both but by can cannot could couldn did didn do does doesn doing don done down during each either else
    elsewhere enough etc even ever every everybody everyone everything everywhere except few for former formerly
    from further furthermore had hadn has hasn have haven having he hence her here hereafter hereby herein hers
    herself him himself his how however i if in indeed instead into inward is isn it its itself just know known
    knows last lately later latter least less lest like likely ll many may maybe me meanwhile might mine more
    moreover most mostly much must my myself namely near nearly neither never nevertheless no nobody none nor not
    nothing now nowhere of off often on once one only onto or other others otherwise ought our ours ourselves out
    outside over overall own per perhaps quite rather re really same seem seemed seeming seems several shall she
    should shouldn since so some somebody somehow someone something sometime sometimes somewhat somewhere still such
    than that the their theirs them themselves then thence there thereafter thereby therefore therein these they
    this those though through throughout thus till to together too toward towards under unless unlike until up upon
    us ve very via was wasn we well were weren what whatever when whence whenever where whereas whereby wherein
    wherever whether which while whither who whoever whole whom whose why will with within without won would wouldn
    yet you your yours yourself yourselves
";

static SET: LazyLock<HashSet<&str>> = LazyLock::new(|| STOP_WORDS.split_whitespace().collect());

/// Whether a lower-case English word carries too little meaning to be searched for.
pub(super) fn is_stop_word(word: &str) -> bool {
    SET.contains(word)
}
