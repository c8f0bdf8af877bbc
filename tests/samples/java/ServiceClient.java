import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** What users of samples/java/TrainingService.java do: train, look, predict meanwhile, stop. */
public final class ServiceClient {
  private static final HttpClient CLIENT = HttpClient.newHttpClient();

  private static HttpResponse<String> ask(String url, String body) throws Exception {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url));
    if (body != null) request.POST(HttpRequest.BodyPublishers.ofString(body));
    return CLIENT.send(request.build(), HttpResponse.BodyHandlers.ofString());
  }

  private static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  /**
   * ServiceClient URL STEPS_BEFORE: trains 2,000 steps more, and again as many until a prediction was answered meanwhile:
   * a fast service may end 2,000 steps before the first request reaches it. The last line is the count of its steps.
   */
  public static void main(String[] arguments) throws Exception {
    String url = arguments[0];
    long before = Long.parseLong(arguments[1]);
    String status = ask(url + "/status", null).body();
    check(status.contains("\"step\": " + before + ","), "the service begins at " + status);
    long steps = before;
    int meanwhile = 0;
    for (int round = 0; round < 50 && meanwhile == 0; ++round) {
      check(ask(url + "/train?steps=2000", "").statusCode() == 200, "train");
      steps += 2000;
      for (boolean training = true; training;) {
        String scores = ask(url + "/predict", "1,-1,0,0\n-1,1,0,0\n").body();
        check(scores.lines().count() == 2, scores);
        status = ask(url + "/status", null).body();
        training = status.contains("\"training\": true");
        if (training) ++meanwhile;
      }
    }
    check(meanwhile > 0, "no prediction was answered while it trained");
    check(status.contains("\"step\": " + steps + ","), status);
    String[] scores = ask(url + "/predict", "1,-1,0,0\n-1,1,0,0\n").body().split("[,\n]");
    check(Float.parseFloat(scores[1]) > Float.parseFloat(scores[0]), String.join(" ", scores));
    check(Float.parseFloat(scores[2]) > Float.parseFloat(scores[3]), String.join(" ", scores));
    HttpResponse<String> wrong = ask(url + "/predict", "1,2,a,4");
    check(wrong.statusCode() == 400, wrong.body());
    check(ask(url + "/stop", "").statusCode() == 200, "stop");
    System.out.println("the service learned in " + steps + " steps, with " + meanwhile + " looks meanwhile");
    System.out.println(steps);
  }
}
